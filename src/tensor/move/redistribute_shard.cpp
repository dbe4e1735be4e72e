#include <tensor/move/redistribute_shard.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/util/accumulate.h>
#include <comm/call/strided_copy.h>
#include <tensor/move/kept_moves.h>
#include <tensor/move/plan_cache.h>
#include <tensor/state/strides.h>

namespace tessera::detail::inline tensor_layer {

namespace {

std::vector<int64_t> mesh_dims_in_order(const Layout& layout) {
  std::vector<int64_t> order;
  for (int64_t m = 0; m < layout.mesh().ndim(); ++m) {
    if (!layout.placements()[static_cast<size_t>(m)].is_shard()) {
      order.push_back(m);
    }
  }
  for (int64_t d = 0; d < static_cast<int64_t>(layout.shape().size()); ++d) {
    const auto& cuts = layout.cuts(d);
    order.insert(order.end(), cuts.begin(), cuts.end());
  }
  return order;
}

Region in_order(const Region& region, const std::vector<int64_t>& order) {
  Region result;
  for (const int64_t d : order) {
    result.push_back(region[static_cast<size_t>(d)]);
  }
  return result;
}

// Sends each part of one cut from `source` along a mesh dim.
at::Tensor scatter_slices(
    const at::Tensor& tensor, const Placement& placement,
    const Communicator& group, int64_t source) {
  const Layout parts(
      tensor.sizes().vec(), MeshShape({group.size()}),
      {placement.with_order(-1)});
  const Region all = region_of(whole(parts.shape()));
  const at::Tensor packed = group.rank() == source
                                ? at::empty({tensor.numel()}, tensor.options())
                                : at::Tensor();
  const at::Tensor value = tensor.contiguous();
  std::vector<int64_t> counts;
  int64_t begin = 0;
  for (int64_t c = 0; c < group.size(); ++c) {
    counts.push_back(c10::multiply_integers(parts.local_shape({c})));
    if (packed.defined()) {
      run_copies(packing(all, region_of(parts, {c})), value, 0, packed, begin);
    }
    begin += counts.back();
  }
  at::Tensor received =
      at::empty(parts.local_shape({group.rank()}), tensor.options());
  group.scatter_v(received, packed, counts, source);
  if (group.engine() == "simulated") {
    // The source is taken to hold what this rank does.
    run_copies(
        packing(all, region_of(parts, {group.rank()})), value, 0, received, 0);
  }
  return received;
}

}  // namespace

at::Tensor redistribute_shard(
    const at::Tensor& local, const DTensorSpec& source,
    const Placements& target) {
  if (!source.has_shard() || source.placements() == target) {
    return local;
  }
  const auto plan = prepared_plan(source, source.mesh(), target);
  return KeptMoves::start(plan, local).wait();
}

at::Tensor to_partial(const at::Tensor& value, const DTensorSpec& target) {
  at::Tensor partial = value;
  for (size_t m = 0; m < target.placements().size(); ++m) {
    const Placement& p = target.placements()[m];
    if (p.is_partial()) {
      partial = partial_value_of(
          partial, p.reduce_op(), (*target.mesh().coordinate())[m]);
    }
  }
  return partial;
}

at::Tensor slice_shard(const at::Tensor& value, const DTensorSpec& target) {
  if (!target.has_shard()) {
    return at::empty({0}, value.options());
  }
  // With their dims in the order of memory, value and shard are row-major.
  const std::vector<int64_t> order =
      memory_order(target.shape(), target.strides());
  const at::Tensor source =
      value.resolve_conj().resolve_neg().permute(order).contiguous();
  const Region all = region_of(whole(source.sizes().vec()));
  const Region mine =
      in_order(region_of(target.layout(), *target.mesh().coordinate()), order);
  const at::Tensor shard = at::empty_strided(
      target.local_shape(), strides_of_shard(target), source.options());
  run_copies(copies_between(all, mine), source, 0, shard, 0);
  return to_partial(shard, target);
}

std::vector<int64_t> strides_of_shard(const DTensorSpec& spec) {
  return shard_strides(spec.local_shape(), spec.shape(), spec.strides());
}

at::Tensor scatter_shard(
    const at::Tensor& tensor, const DTensorSpec& target, int64_t source) {
  if (!target.has_shard()) {
    return at::empty({0}, tensor.options());
  }
  at::Tensor local = tensor;
  for (int64_t m : mesh_dims_in_order(target.layout())) {
    const Placement& placement = target.placements()[static_cast<size_t>(m)];
    const Communicator group = target.mesh().communicator(m);
    if (placement.is_shard()) {
      local = scatter_slices(local, placement, group, source);
      continue;
    }
    local = local.clone(at::MemoryFormat::Contiguous);
    group.broadcast(local, source);
  }
  return to_partial(arranged(local, strides_of_shard(target)), target);
}

}  // namespace tessera::detail::inline tensor_layer
