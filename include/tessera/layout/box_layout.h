// Explicit tilings: which rank holds which box, for layouts that no mesh and
// placements describe (pinwheels, several boxes per rank, mixed devices).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <tessera/export.h>
#include <tessera/layout/layout.h>

namespace tessera {

namespace detail::inline layout_layer {
/// BoxLayout::Tile: one box of a tiling, who holds it and where ("cuda:1";
/// empty: the default).
struct Tile {
  Box box;
  int64_t rank = 0;
  std::string device = {};
  friend bool operator==(const Tile&, const Tile&) = default;
};
}  // namespace detail::inline layout_layer

/// A tensor of `shape` cut into disjoint boxes that cover it. The constructor
/// checks both.
class TESSERA_API BoxLayout {
 public:
  using Tile = detail::Tile;

  BoxLayout(std::vector<int64_t> shape, std::vector<Tile> tiles);
  /// Lists the shards of a layout without Partial; a replicated box belongs to
  /// its lowest coordinate.
  static BoxLayout from(const Layout& layout);

  const std::vector<int64_t>& shape() const { return shape_; }
  const std::vector<Tile>& tiles() const { return tiles_; }
  /// Returns the boxes of a rank, in tile order.
  std::vector<Box> boxes(int64_t rank) const;
  /// Returns the ranks whose tiles share an element with `box`, ascending.
  std::vector<int64_t> ranks_holding(const Box& box) const;

  /// Returns the mesh layout that places every element alike, where one exists:
  /// one tile per rank on a grid, one kind of device. A dim cut into ceil
  /// chunks is Shard, one with other cut points RaggedShard. Empty tiles may
  /// only come with a single cut dim: at the end, where that gives ceil chunks,
  /// else where their offsets put them. A single tile gives nothing, since
  /// every placement of a 1-rank mesh fits. Example: tiles 0:3, 3:3, 3:8 of
  /// ranks 0, 1, 2 -> [8] RS(0,[3,0,5]).
  std::optional<Layout> try_as_mesh() const;

  friend bool operator==(const BoxLayout&, const BoxLayout&) = default;

 private:
  std::vector<int64_t> shape_;
  std::vector<Tile> tiles_;
};

}  // namespace tessera
