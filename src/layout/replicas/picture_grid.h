// A layout as a grid: the ranges of indices that shards hold, and who holds
// what.
#pragma once

#include <string>

#include <tessera/layout/layout.h>
#include <tessera/layout/visualize_sharding.h>

namespace tessera::detail::inline layout_layer {

/// Tells whether draw_grid() can draw this: one or two dims, not empty.
bool fits_grid(const Layout& layout);
/// Draws ranges of rows and columns, and in each cell the ranks that hold it. A
/// 1-d tensor that is too wide becomes a table.
std::string draw_grid(const Layout& layout, const VisualizeOptions& options);

}  // namespace tessera::detail::inline layout_layer
