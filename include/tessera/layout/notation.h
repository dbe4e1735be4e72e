// The one notation for layouts, parsed. Printing is to_string() of each type.
//
//   placement   R | S(0) | SS(0,2) | RS(0,[3,0,5]) | P(sum)   S(0)[1]: order 1
//   placements  S(0) R P(max)
//   mesh        mesh(dp=2, tp=4) | mesh(2, 4) | mesh(tp=2; ranks 1 3)
//               and for short on command lines: dp=2,tp=4 | 2x4
//   shape       [8, 16] | 8x16 | [] for 0-d
//   layout      [8, 16] S(0) R @ mesh(dp=2, tp=4), dtype in front: f32[8, 16]
//
// A text that does not parse is an error that shows the place and says what was
// expected.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/export.h>
#include <tessera/layout/layout.h>

namespace tessera {

/// A layout with the dtype word that stood before the shape ("f32"), if any.
struct TypedLayout {
  std::string dtype;
  Layout layout;
};

/// Parses one placement. Example: parse_placement("SS(0,2)").
TESSERA_API Placement parse_placement(std::string_view text);
/// Parses placements separated by blanks or commas; "" gives none.
TESSERA_API Placements parse_placements(std::string_view text);
/// Parses a mesh, in the long or the short form.
TESSERA_API MeshShape parse_mesh(std::string_view text);
/// Parses a shape, "[8, 16]" or "8x16".
TESSERA_API std::vector<int64_t> parse_shape(std::string_view text);
/// Parses a whole layout. Example: parse_layout("f32[8, 16] S(0) @ mesh(4)").
TESSERA_API TypedLayout parse_layout(std::string_view text);

/// Prints a shape as the notation does: "[8, 16]".
TESSERA_API std::string shape_to_string(const std::vector<int64_t>& shape);

}  // namespace tessera
