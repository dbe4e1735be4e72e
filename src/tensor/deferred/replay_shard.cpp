#include <tensor/deferred/replay_shard.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <tensor/call/op_traits.h>
#include <tensor/deferred/diagonals.h>
#include <tensor/deferred/region.h>
#include <tensor/deferred/replay.h>
#include <tensor/deferred/write_region.h>
#include <tensor/impl/sharded_impl.h>
#include <tensor/impl/wrap.h>
#include <tensor/move/redistribute_shard.h>
#include <tensor/state/plain_is_replicated.h>
#include <tensor/state/strides.h>

namespace tessera::detail::inline tensor_layer {

namespace {

bool is_copy(const RecordedCall& call) {
  return call.op->operator_name().name == "aten::copy_";
}

// Element i of the result depends on elements i of arguments of its shape.
bool is_by_element(const RecordedCall& call) {
  static const std::set<std::string_view> names{
      "aten::clone", "aten::_to_copy"};
  return traits_of(*call.op).is_elementwise ||
         names.contains(call.op->operator_name().name);
}

const RecordedResult* result_in(const RecordedCall& call, uint64_t storage) {
  for (const RecordedResult& result : call.results) {
    if (result.storage == storage) {
      return &result;
    }
  }
  return nullptr;
}

// How a call writes a tensor that is cut.
struct Write {
  enum class How : uint8_t { kAll, kRegion, kUnknown } how = How::kUnknown;
  const RecordedArgument* written = nullptr;
  SlicedRegion region = {};
};

class ShardReplay {
 public:
  explicit ShardReplay(const DTensorSpec& like) : like_(like) {}

  // Returns a version of a storage, seen as `tensor`, in the placements.
  at::Tensor value(const VersionPtr& version, const Geometry& tensor) const {
    if (!can_be_sharded(tensor)) {
      return from_unsharded(version, tensor);
    }
    std::vector<std::pair<const RecordedCall*, Write>> later;
    const VersionPtr* before = &version;
    at::Tensor t;
    while (!t.defined()) {
      const RecordedCall& call = *(*before)->call;
      const uint64_t storage = (*before)->storage;
      if (const RecordedResult* made = result_in(call, storage)) {
        t = make(call, *made, *before, tensor);
        break;
      }
      Write write = write_of(call, storage, tensor);
      if (write.how == Write::How::kUnknown) {
        t = from_unsharded(*before, tensor);
        break;
      }
      later.emplace_back(&call, std::move(write));
      if (is_overwrite(call)) {
        t = make_empty(tensor);
      }
      before = &(*before)->previous;
    }
    std::reverse(later.begin(), later.end());
    for (const auto& [call, write] : later) {
      run(*call, write, t, tensor);
    }
    return t;
  }

 private:
  SpecPtr spec_of_tensor(const Geometry& tensor) const {
    return DTensorSpec::make(
        like_.mesh(), like_.placements(), tensor.sizes,
        strides_in_format(
            tensor.sizes, tensor.strides, c10::MemoryFormat::Preserve),
        tensor.dtype);
  }

  bool can_be_sharded(const Geometry& tensor) const {
    return !like_.layout().has_partial() && !tensor.is_conjugated &&
           !tensor.is_negated && tensor.numel() > 0 &&
           is_dense(tensor.sizes, tensor.strides);
  }

  c10::Device device() const { return c10::Device(like_.mesh().device_type()); }

  at::Tensor make_empty(const Geometry& tensor) const {
    const SpecPtr spec = spec_of_tensor(tensor);
    return wrap(
        at::empty_strided(
            spec->local_shape(), strides_of_shard(*spec),
            at::TensorOptions(tensor.dtype).device(device())),
        spec);
  }

  at::Tensor from_unsharded(
      const VersionPtr& version, const Geometry& tensor) const {
    return slice(replay(version, tensor), tensor);
  }

  at::Tensor slice(const at::Tensor& values, const Geometry& tensor) const {
    const SpecPtr spec = spec_of_tensor(tensor);
    const at::Tensor here = values.resolve_conj().resolve_neg().to(device());
    return wrap(slice_shard(here, *spec), spec);
  }

  // Returns what a call made, before any other wrote it.
  at::Tensor make(
      const RecordedCall& call, const RecordedResult& made,
      const VersionPtr& version, const Geometry& tensor) const {
    if (!call.op) {
      return make_empty(tensor);
    }
    if (call.results.size() != 1 || made.geometry != tensor ||
        writes_anything(call)) {
      return from_unsharded(version, tensor);
    }
    if (is_eye(call) && my_boxes(tensor).size() <= 1) {
      return with_eye(make_empty(tensor), tensor);
    }
    if (is_triangle(call) && my_boxes(tensor).size() <= 1) {
      return make_triangle(call, tensor);
    }
    if (!is_by_element(call)) {
      return from_unsharded(version, tensor);
    }
    const torch::jit::Stack results = run_recorded(
        call,
        [&](const RecordedArgument& argument, const at::Tensor& t) {
          return argument.version ? operand(argument, tensor) : t;
        },
        device());
    const at::Tensor result = results.at(0).toTensor();
    if (!is_sharded(result)) {
      return slice(result, tensor);
    }
    const SpecPtr spec = spec_of_tensor(tensor);
    return wrap(
        redistribute_shard(
            meta_ready(result).local, spec_of(result), spec->placements()),
        spec);
  }

  at::Tensor make_triangle(
      const RecordedCall& call, const Geometry& tensor) const {
    const at::Tensor t =
        value(call.tensors[0].version, *call.tensors[0].geometry);
    const std::vector<Box> mine = my_boxes(tensor);
    const at::Tensor& local = meta_ready(t).local;
    const SpecPtr spec = spec_of_tensor(tensor);
    return mine.empty() ? t : wrap(triangle_of_box(call, local, mine[0]), spec);
  }

  at::Tensor with_eye(const at::Tensor& t, const Geometry& tensor) const {
    for (const Box& mine : my_boxes(tensor)) {
      write_eye(meta_ready(t).local, mine);
    }
    return t;
  }

  static bool writes_anything(const RecordedCall& call) {
    return std::any_of(
        call.tensors.begin(), call.tensors.end(),
        [](const RecordedArgument& argument) { return argument.is_written; });
  }

  // An argument of the tensor's shape, cut as it is; any other whole.
  at::Tensor operand(
      const RecordedArgument& argument, const Geometry& tensor) const {
    return argument.geometry->sizes == tensor.sizes
               ? value(argument.version, *argument.geometry)
               : replay(argument.version, *argument.geometry);
  }

  Write write_of(
      const RecordedCall& call, uint64_t storage,
      const Geometry& tensor) const {
    Write write;
    for (const RecordedArgument& argument : call.tensors) {
      const bool is_this =
          argument.version && argument.version->storage == storage;
      if (argument.is_written && (!is_this || write.written != nullptr)) {
        return {};
      }
      if (argument.is_written) {
        write.written = &argument;
      } else if (is_this && *argument.geometry != tensor) {
        return {};
      }
    }
    const Geometry& written = *write.written->geometry;
    const bool is_known =
        is_fill(call) || is_copy(call) || is_by_element(call) ||
        (is_draw(call) && call.tensors.size() == 1) ||
        (is_eye(call) && written == tensor && my_boxes(tensor).size() <= 1);
    if (!is_known) {
      return {};
    }
    const bool is_flat = call.tensors.size() == 1 &&
                         write.written->covers_storage &&
                         written.is_contiguous() && tensor.is_contiguous() &&
                         written.dtype == tensor.dtype;
    if (written == tensor || is_flat) {
      write.how = Write::How::kAll;
    } else if (auto region = find_region(written, tensor);
               region && reads_others(call, storage) &&
               my_boxes(tensor).size() <= 1) {
      write.how = Write::How::kRegion;
      write.region = *std::move(region);
    }
    return write;
  }

  // None of the arguments that are read is the tensor itself.
  static bool reads_others(const RecordedCall& call, uint64_t storage) {
    return std::none_of(
        call.tensors.begin(), call.tensors.end(),
        [&](const RecordedArgument& argument) {
          return argument.version && argument.version->storage == storage &&
                 !argument.is_written;
        });
  }

  std::vector<Box> my_boxes(const Geometry& tensor) const {
    return spec_of_tensor(tensor)->layout().boxes(*like_.mesh().coordinate());
  }

  void run(
      const RecordedCall& call, const Write& write, const at::Tensor& t,
      const Geometry& tensor) const {
    if (is_eye(call)) {
      with_eye(t, tensor);
      return;
    }
    if (write.how == Write::How::kRegion) {
      const std::vector<Box> mine = my_boxes(tensor);
      if (!mine.empty()) {
        write_region(call, write.region, meta_ready(t).local, mine[0]);
      }
      return;
    }
    const uint64_t storage = write.written->version->storage;
    run_recorded(
        call,
        [&](const RecordedArgument& argument, const at::Tensor& plain) {
          if (!argument.version) {
            return plain;
          }
          return argument.version->storage == storage
                     ? t
                     : operand(argument, tensor);
        },
        device());
  }

  const DTensorSpec& like_;
};

}  // namespace

at::Tensor replay_shard(const at::Tensor& tensor, const SpecPtr& spec) {
  const Replaying replaying;
  const PlainIsReplicated plain_is_replicated;
  const auto options = at::TensorOptions(tensor.scalar_type())
                           .device(c10::Device(spec->mesh().device_type()));
  if (!spec->has_shard()) {
    return at::empty(spec->local_shape(), options);
  }
  const at::Tensor made = ShardReplay(*spec).value(
      deferred_storage(tensor)->version, Geometry(tensor));
  const at::Tensor& local = meta_ready(made).local;
  const std::vector<int64_t> strides = strides_of_shard(*spec);
  if (local.strides() == at::IntArrayRef(strides)) {
    return local;
  }
  return at::empty_strided(spec->local_shape(), strides, options).copy_(local);
}

}  // namespace tessera::detail::inline tensor_layer
