// Regions: what a shard holds, one list of runs per tensor dim.
#pragma once

#include <vector>

#include <tessera/layout/layout.h>

namespace tessera::detail::inline plan_layer {

/// The indices of each tensor dim, in storage order.
using Region = std::vector<Runs>;

/// Returns what the shard at a coordinate holds.
Region region_of(const Layout& layout, const std::vector<int64_t>& coordinate);
/// Returns the region of a box.
Region region_of(const Box& box);

}  // namespace tessera::detail::inline plan_layer
