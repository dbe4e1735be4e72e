#include <tessera/sharded_tensor/conversion.h>

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <c10/util/accumulate.h>
#include <comm/log/call_cause.h>
#include <sharded_tensor/tensor/devices.h>
#include <sharded_tensor/tensor/infer_mesh.h>
#include <sharded_tensor/tensor/state.h>
#include <tessera/comm/world.h>
#include <tessera/layout/notation.h>
#include <tessera/tensor/dtensor.h>

namespace tessera::sharded_tensor {

namespace {

using detail::Run;
using detail::Runs;
using detail::Tile;

// The boxes of a shard with where each lies inside the local tensor: the runs
// of each dim, one after the other.
struct LocalBox {
  Box box;
  Box inside;
};

// A shard without elements is one box, however many runs its dims have.
std::vector<LocalBox> local_boxes(
    const Layout& layout, const std::vector<int64_t>& coordinate) {
  const bool empty =
      c10::multiply_integers(layout.local_shape(coordinate)) == 0;
  std::vector<LocalBox> boxes = {{}};
  for (int64_t d = 0; d < static_cast<int64_t>(layout.shape().size()); ++d) {
    Runs runs = layout.runs(d, coordinate);
    if (empty && runs.size() > 1) {
      runs.erase(runs.begin() + 1, runs.end());
    }
    if (runs.empty()) {
      const int64_t end = layout.shape()[static_cast<size_t>(d)];
      runs.push_back({end, end});
    }
    std::vector<LocalBox> longer;
    for (const LocalBox& box : boxes) {
      int64_t stored = 0;
      for (const Run& run : runs) {
        LocalBox& next = longer.emplace_back(box);
        next.box.offsets.push_back(run.begin);
        next.box.sizes.push_back(run.length());
        next.inside.offsets.push_back(stored);
        next.inside.sizes.push_back(run.length());
        stored += run.length();
      }
    }
    boxes = std::move(longer);
  }
  return boxes;
}

ShardingSpecPtr spec_of_layout(
    const Layout& layout, const std::map<int64_t, c10::Device>& devices) {
  const auto& mesh = layout.mesh();
  if (mesh.ndim() == 1 && layout.placements()[0].is_plain_shard()) {
    std::vector<RemoteDevice> placements;
    for (const int64_t rank : mesh.ranks()) {
      placements.emplace_back(rank, devices.at(rank));
    }
    return std::make_shared<ChunkShardingSpec>(
        layout.placements()[0].dim(), std::move(placements));
  }
  std::vector<ShardMetadata> shards;
  const BoxLayout boxes = BoxLayout::from(layout);
  for (const Tile& tile : boxes.tiles()) {
    shards.emplace_back(
        tile.box.offsets, tile.box.sizes,
        RemoteDevice(tile.rank, devices.at(tile.rank)));
  }
  return std::make_shared<EnumerableShardingSpec>(std::move(shards));
}

// Tells whether several ranks hold the same elements.
bool has_copies(const Layout& layout) {
  for (size_t m = 0; m < layout.placements().size(); ++m) {
    if (layout.placements()[m].is_replicate() &&
        layout.mesh().size(static_cast<int64_t>(m)) > 1) {
      return true;
    }
  }
  return false;
}

// This rank's part of the tensor. Of several copies one is a shard, so what
// reaches it is one partial value of the gradient.
at::Tensor local_of(const at::Tensor& tensor) {
  Placements gradient = placements(tensor);
  for (Placement& placement : gradient) {
    placement = placement.is_replicate() ? Partial() : placement;
  }
  return to_local(tensor, {.grad_placements = gradient});
}

std::vector<at::Tensor> local_parts(
    const at::Tensor& local, const DTensorSpec& spec,
    const std::vector<ShardMetadata>& wanted) {
  if (wanted.empty()) {
    return {};
  }
  std::vector<at::Tensor> parts;
  for (const LocalBox& box :
       local_boxes(spec.layout(), *spec.mesh().coordinate())) {
    at::Tensor part = local;
    for (size_t d = 0; d < box.inside.sizes.size(); ++d) {
      if (box.inside.sizes[d] != local.size(static_cast<int64_t>(d))) {
        part = part.narrow(
            static_cast<int64_t>(d), box.inside.offsets[d],
            box.inside.sizes[d]);
      }
    }
    parts.push_back(part);
  }
  TORCH_INTERNAL_ASSERT(parts.size() == wanted.size());
  return parts;
}

}  // namespace

bool has_mesh(const ShardedTensor& tensor) {
  return tensor.state()->dtensor.defined() ||
         detail::mesh_layout_of(*tensor.state()).has_value();
}

at::Tensor to_dtensor(const ShardedTensor& tensor) {
  const detail::ShardedTensorState& state = *tensor.state();
  if (state.dtensor.defined()) {
    return state.dtensor;
  }
  const auto layout = detail::mesh_layout_of(state);
  TORCH_CHECK_NOT_IMPLEMENTED(
      layout, "to_dtensor, rank ", rank(), ": no mesh has the shards of ",
      to_string(tensor.sharding_spec()), " for a tensor of sizes ",
      shape_to_string(tensor.sizes()),
      "; reshard() to one box per rank on a grid first, such as a "
      "ChunkShardingSpec with every rank once");
  const DeviceMesh mesh =
      detail::shared_mesh(tensor.device().type(), layout->mesh());
  at::Tensor local = mesh.coordinate()
                         ? tensor.local_tensor()
                         : state.anchor.to(c10::Device(tensor.device().type()));
  if (mesh.coordinate() && local.numel() == 0) {
    // An empty box may be empty in another dim than the one that is cut.
    local = local.reshape(layout->local_shape(*mesh.coordinate()));
  }
  return from_local(
      local, mesh, layout->placements(), {.shape = tensor.sizes()});
}

ShardedTensor from_dtensor(
    const at::Tensor& tensor, const ProcessGroup& group) {
  constexpr const char* kCall = "from_dtensor";
  const detail::CallCause cause(kCall);
  const DTensorSpec& spec = tessera::spec(tensor);
  TORCH_CHECK_VALUE(
      !spec.layout().has_partial(), kCall, "(", to_string(spec), "), rank ",
      rank(),
      ": addends of a Partial are no shards; redistribute() to Shard or "
      "Replicate first");
  const auto devices = detail::devices_of_ranks(
      spec.has_shard()
          ? to_local(tensor).device()
          : detail::with_index(c10::Device(spec.mesh().device_type())),
      group, kCall);
  TensorProperties properties;
  properties.dtype = spec.dtype();
  properties.requires_grad =
      tensor.requires_grad() && at::GradMode::is_enabled();
  for (const int64_t owner : spec.layout().mesh().ranks()) {
    TORCH_CHECK_VALUE(
        group.contains(owner), kCall, "(", to_string(spec), "), rank ", rank(),
        ": rank ", owner, " of the mesh is not in the ", to_string(group));
  }
  auto state = detail::make_state(
      *spec_of_layout(spec.layout(), devices), spec.shape(), properties, group,
      kCall);
  // One node of the graph for all, since its backward may communicate.
  const at::Tensor local = local_of(tensor);
  detail::set_local_tensors(
      *state, local_parts(local, spec, detail::shards_of(*state, rank())));
  state->anchor = detail::anchor_after(local);
  if (!has_copies(spec.layout())) {  // else a write would reach one copy only
    state->dtensor = tensor;
  }
  return ShardedTensor(std::move(state));
}

}  // namespace tessera::sharded_tensor
