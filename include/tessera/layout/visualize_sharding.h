// Pictures of layouts: which ranks hold which part of a tensor.
//
// Every function returns text and prints nothing, as to_string() and explain()
// do: the ranks of a program share one terminal, so the program decides which
// of them prints, and where to.
#pragma once

#include <cstdint>
#include <string>

#include <tessera/export.h>
#include <tessera/layout/layout.h>

namespace tessera {

/// How a picture is drawn.
struct VisualizeOptions {
  /// The columns that lines may take. A wider grid leaves out columns, down to
  /// three, and a table breaks its cells into lines.
  int width = 80;
  /// Draws with + - | instead of the box characters of Unicode.
  bool ascii = false;
  /// Gives each shard a background, by the control sequences of a terminal
  /// with 256 colours.
  bool color = false;
  /// Lists the shards in a table also where a grid can be drawn.
  bool table = false;
  /// What stands below a grid that leaves out rows or columns.
  std::string shortened_note =
      "shortened: visualize_shard() tells about one rank";
};

/// Draws which ranks hold which part of a tensor, as PyTorch's
/// visualize_sharding does. A tensor of one or two dims is a grid: index ranges
/// along its edges, in each cell the ranks that hold it. Ranks with copies are
/// listed, "0,1" or "0-3"; ranks whose values are to be reduced stand in
/// "sum(0,2)". Other tensors, empty ones and long 1-d ones are a table with a
/// row per shard: ranks, coordinate (* for any), local shape, boxes. The last
/// line has no newline.
/// Example: visualize_sharding(parse_layout("[4, 4] R S(1) @ mesh(2, 2)")
/// .layout) is
///
///         0:2   2:4
///       ┌─────┬─────┐
///   0:4 │ 0,2 │ 1,3 │
///       └─────┴─────┘
///
/// ranks in one cell hold copies
TESSERA_API std::string visualize_sharding(
    const Layout& layout, const VisualizeOptions& options = {});

/// Tells what one rank holds: its coordinate, local shape, boxes, and the ranks
/// that hold the same. Costs O(mesh dims) and its own boxes, on any mesh. A
/// rank outside the mesh is an error.
/// Example: visualize_shard(layout, 3) of [8, 16] R S(0) @ mesh(dp=2, tp=4) is
///
/// rank 3 at dp=0 tp=3: local shape [2, 16], 32 elements of 128
///   holds [6:8, 0:16]
///   held by 3,7
TESSERA_API std::string visualize_shard(const Layout& layout, int64_t rank);

}  // namespace tessera
