#include <tensor/decompositions/decomposed_call.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <c10/util/accumulate.h>
#include <rules/rule_entry.h>
#include <tensor/call/moves.h>
#include <tensor/call/observer.h>
#include <tensor/checks/gather_counts.h>
#include <tensor/checks/strict_mode.h>
#include <tensor/decompositions/group_coordinates.h>
#include <tensor/impl/sharded_impl.h>
#include <tensor/move/redistribute_shard.h>
#include <tensor/move/view_copies.h>
#include <tensor/state/replicated.h>
#include <tensor/state/strides.h>

namespace tessera::detail::inline tensor_layer {

DecomposedCall::DecomposedCall(const OpCall& call)
    : call_(call),
      mesh_(*call.mesh()),
      device_(mesh_.device_type()),
      computes_(
          mesh_.coordinate().has_value() &&
          CallObserver::current() == nullptr) {
  bool found = false;
  call.for_each_argument_tensor([&](const at::Tensor& t) {
    if (is_sharded(t) && !found) {
      device_ = t.device();
      found = true;
    }
  });
}

size_t DecomposedCall::number(std::string_view name) const {
  const auto found = call_.schema().argumentIndexWithName(name);
  TORCH_INTERNAL_ASSERT(found, call_.op().operator_name(), ": no ", name);
  return static_cast<size_t>(*found);
}

const c10::IValue& DecomposedCall::argument(std::string_view name) const {
  return call_.argument(number(name));
}

bool DecomposedCall::has_argument(std::string_view name) const {
  return call_.schema().argumentIndexWithName(name).has_value();
}

at::Tensor DecomposedCall::tensor(std::string_view name) const {
  return argument(name).toTensor();
}

at::Tensor DecomposedCall::optional_tensor(std::string_view name) const {
  const c10::IValue& value = argument(name);
  return value.isTensor() ? value.toTensor() : at::Tensor();
}

SpecPtr DecomposedCall::spec(const at::Tensor& t) const {
  return is_sharded(t)
             ? meta_nowait(t).spec
             : DTensorSpec::make(
                   mesh_, replicated(mesh_), t.sizes().vec(), t.scalar_type());
}

at::Tensor DecomposedCall::shard(
    std::string_view argument, const at::Tensor& t, const Placements& target) {
  if (!t.defined()) {
    return {};
  }
  const SpecPtr from = spec(t);
  at::Tensor held;
  if (computes_) {
    held = is_sharded(t) ? refreshed_shard(t) : t;
  }
  return move({number(argument), from, target}, held);
}

at::Tensor DecomposedCall::reduce_to(
    const SpecPtr& from, const SpecPtr& to, const at::Tensor& part) {
  return move({0, from, to->placements(), false, /*is_part=*/true}, part);
}

at::Tensor DecomposedCall::move(const Move& move, const at::Tensor& shard) {
  if (move.source->placements() == move.target) {
    return shard;
  }
  announce(move);
  return computes_ ? redistribute_shard(shard, *move.source, move.target)
                   : at::Tensor();
}

at::Tensor DecomposedCall::arranged(
    const at::Tensor& local, const DTensorSpec& spec) {
  return spec.strides() == contiguous_strides(spec.shape())
             ? local.contiguous()
             : detail::arranged(local, strides_of_shard(spec));
}

void DecomposedCall::announce(const Move& move) const {
  if (CallObserver* observer = CallObserver::current()) {
    observer->add(move);
    return;
  }
  if (is_strict()) {
    check_strict(call_, {move});
  }
  count_gathers(call_, {move});
}

void DecomposedCall::announce_exchange(
    std::string_view argument, const SpecPtr& spec, const MeshDims& over,
    const std::function<int64_t(const std::vector<int64_t>&)>& bytes) const {
  announce_collective(
      {number(argument), spec, spec->placements()}, "all_to_all",
      "rows of neighbours", over, bytes);
}

void DecomposedCall::announce_collective(
    Move move, const char* kind, const char* subject, const MeshDims& over,
    const std::function<int64_t(const std::vector<int64_t>&)>& bytes) const {
  if (!is_watched()) {
    return;
  }
  const std::vector<std::string>& names = mesh_.mesh_shape().names();
  Exchange exchange{.text = std::string(kind) + ' ', .subject = subject};
  for (const int64_t m : over) {
    exchange.text +=
        (m == over.front() ? "" : ",") +
        (names.empty() ? std::to_string(m) : names[static_cast<size_t>(m)]);
  }
  exchange.text += std::string(": ") + subject;
  for (const std::vector<int64_t>& at : group_coordinates(
           mesh_.mesh_shape(), over,
           std::vector<int64_t>(static_cast<size_t>(mesh_.ndim()), 0))) {
    exchange.bytes = std::max(exchange.bytes, bytes(at));
  }
  if (exchange.bytes == 0) {
    return;
  }
  if (mesh_.coordinate()) {
    exchange.bytes_here = bytes(*mesh_.coordinate());
  }
  move.exchange = std::move(exchange);
  announce(move);
}

at::Tensor DecomposedCall::gathered(
    const SpecPtr& spec, const MeshDims& over, const char* subject,
    const std::function<at::Tensor()>& part) const {
  const auto others =
      static_cast<int64_t>(
          group_coordinates(
              mesh_.mesh_shape(), over,
              std::vector<int64_t>(static_cast<size_t>(mesh_.ndim()), 0))
              .size()) -
      1;
  announce_collective(
      {0, spec, spec->placements(), false, /*is_part=*/true}, "all_gather",
      subject, over, [&](const std::vector<int64_t>& at) {
        return others * c10::multiply_integers(spec->layout().local_shape(at)) *
               static_cast<int64_t>(c10::elementSize(spec->dtype()));
      });
  if (!computes_) {
    return {};
  }
  const at::Tensor mine = part().contiguous().unsqueeze(0);
  std::vector<int64_t> shape = mine.sizes().vec();
  shape[0] = others + 1;
  const at::Tensor all = at::empty(shape, mine.options());
  mesh_.communicator_over(over).all_gather(all, mine);
  return all;
}

bool DecomposedCall::is_watched() const {
  return CallObserver::current() != nullptr || is_strict();
}

std::vector<c10::IValue> DecomposedCall::run_operator(
    std::initializer_list<std::pair<std::string_view, c10::IValue>> with)
    const {
  const torch::jit::Stack& stack = *call_.stack();
  torch::jit::Stack arguments(
      stack.end() - static_cast<int64_t>(call_.size()), stack.end());
  for (const auto& [name, value] : with) {
    arguments[number(name)] = value;
  }
  call_.op().callBoxed(&arguments);
  return arguments;
}

void DecomposedCall::finish(std::vector<c10::IValue> results) const {
  torch::jit::drop(*call_.stack(), call_.size());
  for (c10::IValue& result : results) {
    call_.stack()->push_back(std::move(result));
  }
}

SpecPtr DecomposedCall::with_placement(
    const DTensorSpec& spec, const MeshDims& dims, const Placement& p) {
  Placements placements = spec.placements();
  for (const int64_t m : dims) {
    placements[static_cast<size_t>(m)] = p;
  }
  return spec.contiguous(placements, spec.dtype());
}

SpecPtr DecomposedCall::with_size(
    const DTensorSpec& like, int64_t dim, const std::vector<int64_t>& lengths) {
  std::vector<int64_t> shape = like.shape();
  shape[static_cast<size_t>(dim)] =
      std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  return DTensorSpec::make(like.mesh(), like.placements(), shape, like.dtype());
}

Placements without_partials(const Placements& placements) {
  Placements result = placements;
  for (Placement& p : result) {
    p = p.is_partial() ? Replicate() : p;
  }
  return result;
}

Reduced reduced(
    const DTensorSpec& self, const std::vector<bool>& dims,
    c10::ScalarType dtype) {
  Reduced result;
  std::vector<int64_t> kept = self.shape();
  std::vector<int64_t> dropped;
  std::vector<int64_t> moved_to(kept.size());
  for (size_t d = 0; d < kept.size(); ++d) {
    moved_to[d] = static_cast<int64_t>(dropped.size());
    if (dims[d]) {
      result.dims.push_back(static_cast<int64_t>(d));
      result.count *= kept[d];
      kept[d] = 1;
    } else {
      dropped.push_back(kept[d]);
    }
  }
  result.operand = without_partials(self.placements());
  Placements with_dims = result.operand;
  Placements without = result.operand;
  for (size_t m = 0; m < with_dims.size(); ++m) {
    if (!with_dims[m].is_shard()) {
      continue;
    }
    const auto d = static_cast<size_t>(with_dims[m].dim());
    if (dims[d]) {
      result.over.push_back(static_cast<int64_t>(m));
      with_dims[m] = without[m] = Replicate();
    } else {
      without[m] = without[m].with_dim(moved_to[d]);
    }
  }
  result.kept = DTensorSpec::make(self.mesh(), with_dims, kept, dtype);
  result.dropped = DTensorSpec::make(self.mesh(), without, dropped, dtype);
  return result;
}

Reduced reduced_by_call(
    const DecomposedCall& decomposed, const DTensorSpec& self,
    c10::ScalarType dtype) {
  const torch::jit::Stack& stack = *decomposed.call().stack();
  const RuleCall rule_call(
      decomposed.call().schema(),
      c10::ArrayRef<c10::IValue>(
          stack.data() + stack.size() - decomposed.call().size(),
          decomposed.call().size()),
      {});
  return reduced(
      self, named_dims(rule_call, static_cast<int64_t>(self.shape().size())),
      dtype);
}

bool is_channels_last(const DTensorSpec& spec) {
  return spec.shape().size() == 4 &&
         c10::is_channels_last_strides_2d(
             at::IntArrayRef(spec.shape()), at::IntArrayRef(spec.strides()));
}

SpecPtr in_format_of(const DTensorSpec& spec, const DTensorSpec& like) {
  const auto format = is_channels_last(like) && spec.shape().size() == 4
                          ? c10::MemoryFormat::ChannelsLast
                          : c10::MemoryFormat::Contiguous;
  return spec.with_shape(
      spec.shape(), strides_in_format(spec.shape(), spec.strides(), format));
}

c10::ScalarType sum_type(c10::ScalarType dtype) {
  return dtype == at::kHalf || dtype == at::kBFloat16 ? at::kFloat : dtype;
}

MeshDims mesh_dims_of_shards(const Placements& placements, int64_t dim) {
  MeshDims dims;
  for (size_t m = 0; m < placements.size(); ++m) {
    if (placements[m].is_shard(dim)) {
      dims.push_back(static_cast<int64_t>(m));
    }
  }
  return dims;
}

bool shards_any(const Placements& placements, const std::vector<bool>& dims) {
  for (const Placement& p : placements) {
    if (p.is_shard() && dims[static_cast<size_t>(p.dim())]) {
      return true;
    }
  }
  return false;
}

bool shards_any(const Placements& placements) {
  for (const Placement& p : placements) {
    if (p.is_shard()) {
      return true;
    }
  }
  return false;
}

at::Tensor positions(
    const DTensorSpec& spec, int64_t dim, const c10::Device& device) {
  const Runs runs = spec.layout().runs(dim, *spec.mesh().coordinate());
  const at::Tensor result = at::empty({total_length(runs)}, at::kLong);
  auto* next = result.mutable_data_ptr<int64_t>();
  for (const Run& run : runs) {
    std::iota(next, next + run.length(), run.begin);
    next += run.length();
  }
  return result.to(device);
}

std::vector<int64_t> lengths_along(
    const Layout& layout, int64_t dim, int64_t m) {
  std::vector<int64_t> lengths;
  std::vector<int64_t> coordinate(static_cast<size_t>(layout.mesh().ndim()), 0);
  for (int64_t c = 0; c < layout.mesh().size(m); ++c) {
    coordinate[static_cast<size_t>(m)] = c;
    lengths.push_back(total_length(layout.runs(dim, coordinate)));
  }
  return lengths;
}

}  // namespace tessera::detail::inline tensor_layer
