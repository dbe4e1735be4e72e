// A layout as a table with a row per shard.
#pragma once

#include <string>

#include <tessera/layout/layout.h>
#include <tessera/layout/visualize_sharding.h>

namespace tessera::detail::inline layout_layer {

/// Lists shards: the ranks that hold one, coordinate, local shape, boxes. Of
/// more than 32 shards those in the middle are left out.
std::string draw_table(const Layout& layout, const VisualizeOptions& options);

}  // namespace tessera::detail::inline layout_layer
