#include <tensor/state/describe_call.h>
#include <tessera/tensor/dtensor.h>

#include <iostream>
#include <mutex>
#include <sstream>
#include <unordered_map>

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <comm/log/call_cause.h>
#include <comm/mesh_device.h>
#include <tensor/api/in_place.h>
#include <tensor/checks/replication_check.h>
#include <tensor/deferred/become_plain.h>
#include <tensor/deferred/memory_now.h>
#include <tensor/deferred/replay_shard.h>
#include <tensor/impl/sharded_impl.h>
#include <tensor/impl/wrap.h>
#include <tensor/move/redistribute_shard.h>
#include <tensor/state/replicated.h>
#include <tensor/state/strides.h>
#include <tessera/layout/notation.h>
#include <tessera/tensor/deferred_init.h>

namespace tessera {

using detail::is_sharded;
using detail::meta_ready;
using detail::spec_of;

namespace {

void check_distributable(
    const char* call, const at::Tensor& tensor, const DeviceMesh& mesh) {
  TORCH_CHECK_VALUE(
      tensor.defined(), detail::describe_call(call, mesh),
      ": the tensor is undefined");
  TORCH_CHECK_NOT_IMPLEMENTED(
      tensor.layout() == at::kStrided, detail::describe_call(call, mesh),
      ": only strided tensors can be sharded; got layout ", tensor.layout(),
      "; call to_dense() first");
  TORCH_CHECK_VALUE(
      tensor.is_leaf() || !tensor.requires_grad(),
      detail::describe_call(call, mesh),
      ": the tensor must be a leaf, since its history stays on one rank; "
      "detach() it, or use from_local()");
  if (!tensor.is_meta() || is_deferred(tensor)) {
    detail::check_mesh_device(call, mesh);
  }
}

at::Tensor on_mesh_device(const at::Tensor& tensor, const DeviceMesh& mesh) {
  return tensor.device().type() == mesh.device_type() || tensor.is_meta()
             ? tensor
             : tensor.to(c10::Device(mesh.device_type()));
}

// The strides of a dense value are those of the tensor, and its shards follow;
// see Note [How shards lie in memory], strides.h.
SpecPtr spec_like(
    const at::Tensor& tensor, const DeviceMesh& mesh,
    const Placements& placements) {
  return DTensorSpec::make(
      mesh, placements, tensor.sizes().vec(),
      detail::strides_in_format(
          tensor.sizes(), tensor.strides(), c10::MemoryFormat::Preserve),
      tensor.scalar_type());
}

at::Tensor make_shard(
    const at::Tensor& tensor, const DTensorSpec& spec,
    const DistributeOptions& options) {
  if (is_deferred(tensor)) {
    return detail::replay_shard(tensor, spec.shared_from_this());
  }
  const at::Tensor value =
      on_mesh_device(tensor.detach(), spec.mesh()).resolve_conj().resolve_neg();
  if (!options.src_data_rank || value.is_meta()) {
    at::Tensor local = detail::slice_shard(value, spec);
    return local.is_alias_of(value) ? local.clone() : local;
  }
  return detail::scatter_shard(value, spec, *options.src_data_rank);
}

// Refuses a gradient that cannot be converted before its tensor has changed.
void check_existing_gradient(const at::Tensor& tensor, const DeviceMesh& mesh) {
  const at::Tensor& gradient = tensor.grad();
  if (gradient.defined() && !is_sharded(gradient)) {
    check_distributable("make_dtensor_ of the gradient", gradient, mesh);
    TORCH_CHECK_VALUE(
        !gradient.is_view() && !gradient.is_inference(),
        detail::describe_call("make_dtensor_", mesh),
        ": the gradient is a view or an inference tensor, which cannot change "
        "in place; clone() it into mutable_grad(), or reset() it, first");
  }
}

void check_source(const DTensorSpec& spec, const DistributeOptions& options) {
  if (!options.src_data_rank) {
    return;
  }
  for (int64_t m = 0; m < spec.mesh().ndim(); ++m) {
    TORCH_CHECK_VALUE(
        *options.src_data_rank >= 0 &&
            *options.src_data_rank < spec.mesh().size(m),
        detail::describe_call("distribute_tensor", spec.mesh()),
        ": src_data_rank must be a coordinate of every mesh dim; got ",
        *options.src_data_rank, " for mesh dim ", m, " of size ",
        spec.mesh().size(m));
  }
}

// What is placed is one tensor, so all ranks should have it alike.
void check_equal_values(
    const char* call, const at::Tensor& tensor, const DeviceMesh& mesh) {
  const std::string name =
      tensor.name().empty() ? "the tensor" : "'" + tensor.name() + "'";
  detail::check_replication(
      std::string(call) + " on " + to_string(mesh), {{name, tensor}}, mesh);
}

bool has_layout(
    const at::Tensor& tensor, const DeviceMesh& mesh,
    const Placements& placements) {
  const Layout wanted(tensor.sizes().vec(), mesh.mesh_shape(), placements);
  return spec_of(tensor).mesh() == mesh &&
         spec_of(tensor).placements() == wanted.placements();
}

}  // namespace

bool is_dtensor(const at::Tensor& tensor) {
  return is_sharded(tensor);
}

const DTensorSpec& spec(const at::Tensor& tensor) {
  TORCH_CHECK_TYPE(
      is_sharded(tensor),
      "spec: the tensor is not sharded; distribute_tensor() or from_local() "
      "makes a sharded one");
  return spec_of(tensor);
}

const DeviceMesh& device_mesh(const at::Tensor& tensor) {
  return spec(tensor).mesh();
}

const Placements& placements(const at::Tensor& tensor) {
  return spec(tensor).placements();
}

at::Tensor distribute_tensor(
    const at::Tensor& tensor, const DeviceMesh& mesh,
    const Placements& placements, const DistributeOptions& options) {
  const detail::CallCause cause("distribute_tensor", &mesh);
  const detail::MemoryNow memory;
  check_distributable("distribute_tensor", tensor, mesh);
  if (is_sharded(tensor)) {
    TORCH_CHECK_VALUE(
        has_layout(tensor, mesh, placements),
        detail::describe_call("distribute_tensor", mesh),
        ": the tensor is sharded already; got ", to_string(spec_of(tensor)),
        ", wanted ", to_string(placements), "; use redistribute()");
    return tensor;
  }
  const SpecPtr spec = spec_like(tensor, mesh, placements);
  check_source(*spec, options);
  if (detail::checks_replication() && !options.src_data_rank &&
      !is_deferred(tensor)) {
    check_equal_values("distribute_tensor", tensor, mesh);
  }
  c10::NoGradGuard no_grad;
  at::Tensor result = detail::wrap(make_shard(tensor, *spec, options), spec);
  result.set_requires_grad(tensor.requires_grad());
  return result;
}

at::Tensor distribute_tensor(const at::Tensor& tensor) {
  return distribute_tensor(
      tensor, current_mesh(), detail::replicated(current_mesh()));
}

namespace {

// Notices two rank threads that convert one tensor object at a time: modules
// must not be shared between ranks.
class Conversion {
 public:
  Conversion(const at::Tensor& tensor, const DeviceMesh& mesh)
      : impl_(tensor.unsafeGetTensorImpl()) {
    std::lock_guard<std::mutex> lock(mutex());
    auto [it, fresh] = under_way().try_emplace(impl_, mesh.world().rank());
    TORCH_CHECK_VALUE(
        fresh, detail::describe_call("make_dtensor_", mesh), ": rank ",
        it->second,
        " converts the same tensor object; every rank needs tensors and "
        "modules of its own");
  }
  ~Conversion() {
    std::lock_guard<std::mutex> lock(mutex());
    under_way().erase(impl_);
  }
  Conversion(const Conversion&) = delete;
  Conversion& operator=(const Conversion&) = delete;

 private:
  static std::mutex& mutex() {
    static std::mutex instance;
    return instance;
  }
  static std::unordered_map<const void*, int64_t>& under_way() {
    static std::unordered_map<const void*, int64_t> instance;
    return instance;
  }
  const void* impl_;
};

}  // namespace

namespace detail::inline tensor_layer {

void check_in_place(
    const char* call, const at::Tensor& tensor, const DeviceMesh& mesh,
    const Placements& placements) {
  check_distributable(call, tensor, mesh);
  if (is_sharded(tensor)) {
    TORCH_CHECK_VALUE(
        device_mesh(tensor).world().rank() == mesh.world().rank(),
        detail::describe_call(call, mesh), ": the tensor belongs to rank ",
        device_mesh(tensor).world().rank(),
        "; every rank needs tensors and modules of its own");
    TORCH_CHECK_VALUE(
        has_layout(tensor, mesh, placements), detail::describe_call(call, mesh),
        ": the tensor has another layout already; got ",
        to_string(spec_of(tensor)), ", wanted ", to_string(placements),
        "; redistribute() makes a new tensor");
    return;
  }
  TORCH_CHECK_VALUE(
      !tensor.is_inference(), detail::describe_call(call, mesh),
      ": an inference tensor cannot change in place; clone() it outside of "
      "InferenceMode");
  TORCH_CHECK_VALUE(
      !tensor.is_view(), detail::describe_call(call, mesh),
      ": the tensor is a view, and its base would stay plain; convert the "
      "base, or distribute_tensor() a copy");
  check_existing_gradient(tensor, mesh);
}

void convert_in_place(
    const char* call, const at::Tensor& tensor, const DeviceMesh& mesh,
    const Placements& placements, const ShardFn& shard) {
  check_in_place(call, tensor, mesh, placements);
  if (is_sharded(tensor)) {
    return;
  }
  const MemoryNow memory;
  const SpecPtr spec = spec_like(tensor, mesh, placements);
  Conversion conversion(tensor, mesh);
  c10::NoGradGuard no_grad;
  const at::Tensor local = shard(tensor, *spec);
  if (is_deferred(tensor)) {
    become_plain(tensor, at::empty({0}, local.options()));
  }
  install(tensor, local, spec);
  tensor.unsafeGetTensorImpl()->bump_version();
  if (tensor.grad().defined() && !is_sharded(tensor.grad())) {
    convert_in_place(call, tensor.grad(), mesh, placements, shard);
  }
}

}  // namespace detail::inline tensor_layer

void make_dtensor_(
    const at::Tensor& tensor, const DeviceMesh& mesh,
    const Placements& placements, const DistributeOptions& options) {
  constexpr const char* kCall = "make_dtensor_";
  const detail::CallCause cause(kCall, &mesh);
  detail::convert_in_place(
      kCall, tensor, mesh, placements,
      [&](const at::Tensor& value, const DTensorSpec& spec) {
        check_source(spec, options);
        if (detail::checks_replication() && value.is_same(tensor) &&
            !is_deferred(value)) {
          check_equal_values(kCall, value, mesh);
        }
        return make_shard(value, spec, options);
      });
}

std::string to_string(const at::Tensor& tensor) {
  std::ostringstream out;
  if (!is_sharded(tensor)) {
    out << tensor;
    return out.str();
  }
  const DTensorSpec& spec = spec_of(tensor);
  out << to_string(spec) << '\n';
  if (!spec.has_shard()) {
    out << "rank " << spec.mesh().world().rank() << " is outside the mesh";
    return out.str();
  }
  out << "rank " << spec.mesh().world().rank() << " holds";
  for (const Box& box : spec.layout().boxes(*spec.mesh().coordinate())) {
    out << ' ' << to_string(box);
  }
  out << (meta_ready(tensor).local.numel() == 0 ? " nothing\n" : ":\n")
      << meta_ready(tensor).local;
  return out.str();
}

void print(const at::Tensor& tensor) {
  std::cout << to_string(tensor) + "\n" << std::flush;  // ranks print at once
}

std::vector<ChunkStorageMetadata> chunk_list(const at::Tensor& tensor) {
  const DTensorSpec& spec = tessera::spec(tensor);
  TORCH_CHECK_VALUE(
      !spec.layout().has_partial(), "chunk_list(", to_string(spec), "), rank ",
      spec.mesh().world().rank(),
      ": a Partial tensor has addends, not chunks; redistribute() to Shard or "
      "Replicate first");
  std::vector<ChunkStorageMetadata> chunks;
  if (spec.has_shard()) {
    for (Box& box : spec.layout().boxes(*spec.mesh().coordinate())) {
      chunks.push_back({std::move(box.offsets), std::move(box.sizes)});
    }
  }
  return chunks;
}

}  // namespace tessera
