// Note [Tilings that are meshes]
// Full tiles must be the cells of a grid: along every tensor dim the places
// where tiles begin, sorted, are the cut points. A dim whose parts are those of
// the ceil split becomes Shard, another one RaggedShard.
//   begins 0 3 6 9 of 10 -> parts 3 3 3 1 -> Shard
//   begins 0 3 of 8      -> parts 3 5     -> RaggedShard [3, 5]
// Empty tiles only go with a single cut dim, where they are parts of length 0:
// at the end if that gives the ceil split, else where their offsets put them.
#include <algorithm>
#include <numeric>
#include <set>

#include <tessera/layout/box_layout.h>

#include "layout/arithmetic.h"
#include "layout/boxes/device_kind.h"
#include "layout/cut.h"

namespace tessera {
namespace {

using detail::Tile;

using TileList = std::vector<const Tile*>;

bool distinct_ranks_of_one_kind(const std::vector<Tile>& tiles) {
  std::set<int64_t> ranks;
  for (const Tile& tile : tiles) {
    ranks.insert(tile.rank);
  }
  return ranks.size() == tiles.size() &&
         detail::device_kinds(tiles).size() == 1;
}

// The single tensor dim in which all of the empty tiles are empty.
std::optional<size_t> empty_dim(const TileList& empty) {
  std::optional<size_t> result;
  for (size_t d = 0; d < empty[0]->box.sizes.size(); ++d) {
    const bool all = std::all_of(empty.begin(), empty.end(), [&](auto* tile) {
      return tile->box.sizes[d] == 0;
    });
    if (all && result) {
      return std::nullopt;
    }
    result = all ? std::optional(d) : result;
  }
  return result;
}

// One tensor dim that is cut.
struct CutDim {
  size_t dim;
  std::vector<int64_t> begins;  // ascending
};

std::vector<CutDim> cut_dims(
    const std::vector<int64_t>& shape, const TileList& full) {
  std::vector<CutDim> result;
  for (size_t d = 0; d < shape.size(); ++d) {
    std::set<int64_t> begins;
    for (const Tile* tile : full) {
      begins.insert(tile->box.offsets[d]);
    }
    if (begins.size() > 1) {
      result.push_back({d, {begins.begin(), begins.end()}});
    }
  }
  return result;
}

std::vector<int64_t> parts_between(
    const std::vector<int64_t>& begins, int64_t length) {
  std::vector<int64_t> parts;
  for (size_t i = 0; i < begins.size(); ++i) {
    parts.push_back(
        (i + 1 < begins.size() ? begins[i + 1] : length) - begins[i]);
  }
  return parts;
}

// Tells whether every full tile is what the layout gives its rank.
bool holds_alike(const Layout& layout, const TileList& full) {
  return std::all_of(full.begin(), full.end(), [&](const Tile* tile) {
    return layout.box(*layout.mesh().coordinate_of(tile->rank)) == tile->box;
  });
}

std::optional<Layout> grid_layout(
    const std::vector<int64_t>& shape, const TileList& full,
    const std::vector<CutDim>& dims) {
  std::vector<int64_t> counts;
  Placements placements;
  for (const CutDim& cut : dims) {
    const int64_t length = shape[cut.dim];
    counts.push_back(static_cast<int64_t>(cut.begins.size()));
    placements.push_back(detail::shard_of_lengths(
        static_cast<int64_t>(cut.dim), parts_between(cut.begins, length)));
  }
  if (detail::checked_product(counts) != static_cast<int64_t>(full.size())) {
    return std::nullopt;
  }
  std::vector<int64_t> ranks(full.size(), -1);
  for (const Tile* tile : full) {
    size_t cell = 0;
    for (const CutDim& cut : dims) {
      const auto at = std::lower_bound(
          cut.begins.begin(), cut.begins.end(), tile->box.offsets[cut.dim]);
      cell = cell * cut.begins.size() +
             static_cast<size_t>(at - cut.begins.begin());
    }
    if (ranks[cell] >= 0) {
      return std::nullopt;
    }
    ranks[cell] = tile->rank;
  }
  Layout layout(shape, MeshShape::from_ranks(ranks, counts), placements);
  return holds_alike(layout, full) ? std::optional(layout) : std::nullopt;
}

// The order of tiles along one dim, or nothing where an empty one does not lie
// between two others. An empty tile comes before the full one that begins at
// its offset. The end of the dim, which is the offset that an empty shard has
// in any place, stands for the end of the full tile before it in the list.
std::optional<TileList> order_by_offset(
    const std::vector<Tile>& tiles, size_t dim, int64_t length) {
  std::vector<std::pair<int64_t, const Tile*>> places;
  std::set<int64_t> ends{0};
  int64_t last_end = 0;
  for (const Tile& tile : tiles) {
    const int64_t offset = tile.box.offsets[dim];
    if (!tile.box.empty()) {
      last_end = offset + tile.box.sizes[dim];
      ends.insert(last_end);
    } else if (tile.box.sizes[dim] != 0) {
      return std::nullopt;
    }
    places.emplace_back(
        tile.box.empty() && offset == length ? last_end : offset, &tile);
  }
  std::stable_sort(
      places.begin(), places.end(), [](const auto& a, const auto& b) {
        return std::pair(a.first, !a.second->box.empty()) <
               std::pair(b.first, !b.second->box.empty());
      });
  TileList order;
  for (const auto& [place, tile] : places) {
    if (!ends.contains(place)) {
      return std::nullopt;
    }
    order.push_back(tile);
  }
  return order;
}

std::optional<Layout> line_layout(
    const std::vector<int64_t>& shape, size_t dim, const TileList& order,
    const TileList& full) {
  std::vector<int64_t> ranks;
  std::vector<int64_t> parts;
  for (const Tile* tile : order) {
    ranks.push_back(tile->rank);
    parts.push_back(tile->box.empty() ? 0 : tile->box.sizes[dim]);
  }
  if (std::accumulate(parts.begin(), parts.end(), int64_t{0}) != shape[dim]) {
    return std::nullopt;
  }
  const std::vector<int64_t> counts{static_cast<int64_t>(ranks.size())};
  Layout layout(
      shape, MeshShape::from_ranks(ranks, counts),
      {detail::shard_of_lengths(static_cast<int64_t>(dim), parts)});
  return holds_alike(layout, full) ? std::optional(layout) : std::nullopt;
}

// With empty tiles: they follow, where that is the ceil split.
std::optional<Layout> line_with_empty(
    const std::vector<int64_t>& shape, const std::vector<Tile>& tiles,
    TileList full, const TileList& empty, size_t dim) {
  std::sort(full.begin(), full.end(), [&](const Tile* a, const Tile* b) {
    return a->box.offsets[dim] < b->box.offsets[dim];
  });
  TileList order = full;
  order.insert(order.end(), empty.begin(), empty.end());
  auto followed = line_layout(shape, dim, order, full);
  if (followed && followed->placements()[0].is_plain_shard()) {
    return followed;
  }
  const auto placed = order_by_offset(tiles, dim, shape[dim]);
  return placed ? line_layout(shape, dim, *placed, full) : std::nullopt;
}

}  // namespace

std::optional<Layout> BoxLayout::try_as_mesh() const {
  if (tiles_.size() < 2 || !distinct_ranks_of_one_kind(tiles_)) {
    return std::nullopt;
  }
  TileList full, empty;
  for (const Tile& tile : tiles_) {
    (tile.box.empty() ? empty : full).push_back(&tile);
  }
  if (full.empty()) {
    return std::nullopt;  // nothing is held: every layout fits
  }
  const std::vector<CutDim> dims = cut_dims(shape_, full);
  if (empty.empty()) {
    return grid_layout(shape_, full, dims);
  }
  if (dims.size() > 1) {
    return std::nullopt;
  }
  const auto dim = dims.empty() ? empty_dim(empty) : dims[0].dim;
  return dim ? line_with_empty(shape_, tiles_, full, empty, *dim)
             : std::nullopt;
}

}  // namespace tessera
