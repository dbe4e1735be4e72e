// Which mesh and placements hold a sharded tensor's shards.
#pragma once

#include <optional>

#include <sharded_tensor/tensor/state.h>
#include <tessera/comm/device_mesh.h>
#include <tessera/layout/layout.h>

namespace tessera::detail::inline sharded_tensor_layer {

/// Returns the layout on a mesh that has these shards, one per rank; nothing
/// where there is none, or they are on devices of several kinds.
std::optional<Layout> mesh_layout_of(const ShardedTensorState& state);

/// Returns the mesh of a shape in this rank's world, the same one each time:
/// plans are found again by the address of their mesh.
DeviceMesh shared_mesh(c10::DeviceType device_type, const MeshShape& shape);

}  // namespace tessera::detail::inline sharded_tensor_layer
