#include <tensor/movement.h>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <c10/util/accumulate.h>
#include <tensor/execute.h>
#include <tensor/plan_cache.h>
#include <tensor/region.h>

namespace tessera::detail {

namespace {

std::vector<int64_t> mesh_dims_in_cut_order(const Layout& layout) {
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

// Returns what each part of one cut receives of a tensor: a region of it.
std::vector<Region> parts_of(
    const at::Tensor& tensor, const Placement& placement, int64_t parts) {
  std::vector<Region> regions(
      static_cast<size_t>(parts), region_of(whole(tensor.sizes().vec())));
  const auto d = static_cast<size_t>(placement.dim());
  for (int64_t c = 0; c < parts; ++c) {
    regions[static_cast<size_t>(c)][d] =
        cut_runs(placement, tensor.size(placement.dim()), parts, c);
  }
  return regions;
}

// Sends each part of one cut from `source` along a mesh dim.
at::Tensor scatter_cut(
    const at::Tensor& tensor, const Placement& placement,
    const Communicator& group, int64_t source) {
  const Region all = region_of(whole(tensor.sizes().vec()));
  std::vector<int64_t> counts;
  std::vector<at::Tensor> pieces;
  std::vector<int64_t> mine;
  for (const Region& part : parts_of(tensor, placement, group.size())) {
    const std::vector<int64_t> shape = shared_shape(all, part);
    if (static_cast<int64_t>(counts.size()) == group.rank()) {
      mine = shape;
    }
    counts.push_back(c10::multiply_integers(shape));
    if (group.rank() == source) {
      pieces.push_back(pack(tensor, all, part));
    }
  }
  at::Tensor received = at::empty(mine, tensor.options());
  group.scatter_v(
      received, group.rank() == source ? at::cat(pieces) : at::Tensor(), counts,
      source);
  return received;
}

}  // namespace

Placements replicated(const DeviceMesh& mesh) {
  return Placements(static_cast<size_t>(mesh.ndim()), Replicate());
}

at::Tensor move_shard(
    const at::Tensor& local, const DTensorSpec& source,
    const Placements& target) {
  if (!source.has_shard() || source.placements() == target) {
    return local;
  }
  return execute(cached_plan(source, target), local, source.mesh());
}

at::Tensor to_addend(const at::Tensor& value, const DTensorSpec& target) {
  at::Tensor addend = value;
  for (size_t m = 0; m < target.placements().size(); ++m) {
    const Placement& p = target.placements()[m];
    if (p.is_partial()) {
      addend =
          addend_of(addend, p.reduce_op(), (*target.mesh().coordinate())[m]);
    }
  }
  return addend;
}

at::Tensor cut_shard(const at::Tensor& value, const DTensorSpec& target) {
  if (!target.has_shard()) {
    return at::empty({0}, value.options());
  }
  const Region mine = region_of(target.layout(), *target.mesh().coordinate());
  return to_addend(
      pack(value, region_of(whole(target.shape())), mine)
          .view(target.local_shape()),
      target);
}

at::Tensor scatter_shard(
    const at::Tensor& tensor, const DTensorSpec& target, int64_t source) {
  if (!target.has_shard()) {
    return at::empty({0}, tensor.options());
  }
  at::Tensor local = tensor;
  for (int64_t m : mesh_dims_in_cut_order(target.layout())) {
    const Placement& placement = target.placements()[static_cast<size_t>(m)];
    const Communicator group = target.mesh().communicator(m);
    if (placement.is_shard()) {
      local = scatter_cut(local, placement, group, source);
      continue;
    }
    local = local.clone(at::MemoryFormat::Contiguous);
    group.broadcast(local, source);
  }
  return to_addend(local, target);
}

}  // namespace tessera::detail
