// Which mesh and placements hold a sharded tensor's shards.
#pragma once

#include <optional>

#include <sharded_tensor/state.h>
#include <tessera/layout/layout.h>

namespace tessera::detail {

/// Returns the layout on a mesh that has these shards, one per rank; nothing
/// where there is none, or they are on devices of several kinds.
std::optional<Layout> mesh_layout_of(const ShardedTensorState& state);

}  // namespace tessera::detail
