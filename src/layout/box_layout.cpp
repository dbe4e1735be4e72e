#include <tessera/layout/box_layout.h>

#include <algorithm>
#include <set>

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <tessera/layout/notation.h>

#include "base/text.h"
#include "layout/arithmetic.h"
#include "layout/box_cover.h"

namespace tessera {
namespace {

std::string describe(const std::vector<Tile>& tiles, size_t i) {
  return c10::str("tile ", i, " ", tiles[i].box, " of rank ", tiles[i].rank);
}

void check_tile(
    const std::string& call, const std::vector<int64_t>& shape,
    const std::vector<Tile>& tiles, size_t i) {
  const auto& [box, rank, device] = tiles[i];
  TORCH_CHECK_VALUE(
      box.offsets.size() == shape.size() && box.sizes.size() == shape.size(),
      call, ": tile ", i, " of rank ", rank, " must have ", shape.size(),
      " offsets and sizes; got ", box.offsets.size(), " and ",
      box.sizes.size());
  TORCH_CHECK_VALUE(
      rank >= 0, call, ": ranks must not be negative; got ",
      describe(tiles, i));
  for (size_t d = 0; d < shape.size(); ++d) {
    // offset + size could overflow, shape - size cannot.
    TORCH_CHECK_VALUE(
        box.offsets[d] >= 0 && box.sizes[d] >= 0 &&
            box.offsets[d] <= shape[d] - box.sizes[d],
        call, ": ", "tile ", i, " of rank ", rank, " at offsets [",
        base::join(box.offsets, ", "), "] of sizes [",
        base::join(box.sizes, ", "), "] reaches outside in tensor dim ", d);
  }
}

std::vector<Box> boxes_of(const std::vector<Tile>& tiles) {
  std::vector<Box> boxes;
  boxes.reserve(tiles.size());
  for (const Tile& tile : tiles) {
    boxes.push_back(tile.box);
  }
  return boxes;
}

}  // namespace

BoxLayout::BoxLayout(std::vector<int64_t> shape, std::vector<Tile> tiles)
    : shape_(std::move(shape)), tiles_(std::move(tiles)) {
  const std::string call = c10::str("BoxLayout(", shape_to_string(shape_), ")");
  for (size_t d = 0; d < shape_.size(); ++d) {
    TORCH_CHECK_VALUE(
        shape_[d] >= 0, call, ": sizes must not be negative; got ", shape_[d],
        " for tensor dim ", d);
  }
  TORCH_CHECK_VALUE(
      detail::checked_product(shape_).has_value(), call,
      ": the number of elements exceeds 64 bits");
  for (size_t i = 0; i < tiles_.size(); ++i) {
    check_tile(call, shape_, tiles_, i);
  }
  const std::vector<Box> all = boxes_of(tiles_);
  if (const auto pair = find_overlap(all)) {
    TORCH_CHECK_VALUE(
        false, call, ": tiles must not share elements; ",
        describe(tiles_, pair->first), " and ", describe(tiles_, pair->second),
        " share ", *intersect(all[pair->first], all[pair->second]));
  }
  if (const auto gap = detail::first_miscovered(all, whole(shape_))) {
    TORCH_CHECK_VALUE(
        false, call, ": tiles must cover every element; none of the ",
        tiles_.size(), " tiles holds [", base::join(*gap, ", "), "]");
  }
}

namespace {

// The tiles of a shard; an empty shard has one empty tile, which keeps its rank
// in the layout.
std::vector<Box> tile_boxes(
    const Layout& layout, const std::vector<int64_t>& coordinate) {
  std::vector<Box> boxes = layout.boxes(coordinate);
  if (!boxes.empty()) {
    return boxes;
  }
  Box empty = whole(layout.shape());
  const std::vector<int64_t> local = layout.local_shape(coordinate);
  for (size_t d = 0; d < local.size(); ++d) {
    const Runs runs = layout.runs(static_cast<int64_t>(d), coordinate);
    empty.offsets[d] = runs.empty() ? layout.shape()[d] : runs.front().begin;
    empty.sizes[d] = runs.empty() ? 0 : runs.front().length();
  }
  return {empty};
}

}  // namespace

BoxLayout BoxLayout::from(const Layout& layout) {
  TORCH_CHECK_VALUE(
      !layout.has_partial(), "BoxLayout::from(", layout,
      "): addends of a Partial are no tiles; reduce to Replicate or Shard "
      "first");
  // Replicated mesh dims count from 0 to 0.
  std::vector<int64_t> limits = layout.mesh().sizes();
  for (size_t m = 0; m < limits.size(); ++m) {
    if (layout.placements()[m].is_replicate()) {
      limits[m] = 1;
    }
  }
  std::vector<Tile> tiles;
  std::vector<int64_t> coordinate(limits.size(), 0);
  do {
    const int64_t rank = layout.mesh().rank_at(coordinate);
    for (Box& box : tile_boxes(layout, coordinate)) {
      tiles.push_back({std::move(box), rank, ""});
    }
  } while (detail::next_row_major(coordinate, limits));
  return BoxLayout(layout.shape(), std::move(tiles));
}

std::vector<Box> BoxLayout::boxes(int64_t rank) const {
  std::vector<Box> result;
  for (const Tile& tile : tiles_) {
    if (tile.rank == rank) {
      result.push_back(tile.box);
    }
  }
  return result;
}

std::vector<int64_t> BoxLayout::ranks_holding(const Box& box) const {
  TORCH_CHECK_VALUE(
      box.sizes.size() == shape_.size(),
      "BoxLayout::ranks_holding: the box "
      "must have as many dims as the shape ",
      shape_to_string(shape_), "; got ", box);
  std::set<int64_t> ranks;
  for (const Tile& tile : tiles_) {
    if (intersect(tile.box, box)) {
      ranks.insert(tile.rank);
    }
  }
  return {ranks.begin(), ranks.end()};
}

namespace {

// The grid that tiles lie on, if they do.
struct Grid {
  std::vector<size_t> dims;     // tensor dims that are cut
  std::vector<int64_t> counts;  // parts of each, empty ones included
  std::vector<int64_t> chunks;  // ceil chunk of each
};

std::string device_kind(const std::string& device) {
  return device.substr(0, device.find(':'));
}

bool distinct_ranks_of_one_kind(const std::vector<Tile>& tiles) {
  std::set<int64_t> ranks;
  for (const Tile& tile : tiles) {
    if (!ranks.insert(tile.rank).second ||
        device_kind(tile.device) != device_kind(tiles[0].device)) {
      return false;
    }
  }
  return true;
}

// The single tensor dim in which all of the empty tiles are empty.
std::optional<size_t> empty_dim(const std::vector<const Tile*>& empty) {
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

// Cuts every dim where tiles begin at several places. The places are compared
// with the ceil split by the caller, box by box.
std::optional<Grid> grid_of(
    const std::vector<int64_t>& shape, const std::vector<const Tile*>& full,
    const std::vector<const Tile*>& empty) {
  Grid grid;
  for (size_t d = 0; d < shape.size(); ++d) {
    std::set<int64_t> begins;
    for (const Tile* tile : full) {
      begins.insert(tile->box.offsets[d]);
    }
    if (begins.size() > 1) {
      grid.dims.push_back(d);
      grid.counts.push_back(static_cast<int64_t>(begins.size()));
    }
  }
  if (!empty.empty()) {
    if (grid.dims.empty()) {
      const auto d = empty_dim(empty);
      if (!d) {
        return std::nullopt;
      }
      grid.dims.push_back(*d);
      grid.counts.push_back(1);
    }
    if (grid.dims.size() != 1) {
      return std::nullopt;
    }
    grid.counts[0] += static_cast<int64_t>(empty.size());
  }
  for (size_t i = 0; i < grid.dims.size(); ++i) {
    grid.chunks.push_back(
        detail::ceil_div(shape[grid.dims[i]], grid.counts[i]));
  }
  const auto cells = detail::checked_product(grid.counts);
  if (cells != static_cast<int64_t>(full.size() + empty.size())) {
    return std::nullopt;
  }
  return grid;
}

}  // namespace

std::optional<Layout> BoxLayout::try_as_mesh() const {
  if (tiles_.size() < 2 || !distinct_ranks_of_one_kind(tiles_)) {
    return std::nullopt;
  }
  std::vector<const Tile*> full, empty;
  for (const Tile& tile : tiles_) {
    (tile.box.empty() ? empty : full).push_back(&tile);
  }
  if (full.empty()) {
    return std::nullopt;  // nothing is held: every layout fits
  }
  const auto grid = grid_of(shape_, full, empty);
  if (!grid) {
    return std::nullopt;
  }
  // Row-major number of every tile's cell; empty tiles follow in their order.
  std::vector<int64_t> ranks(tiles_.size(), -1);
  const auto cell_of = [&](const Tile& tile) {
    int64_t cell = 0;
    for (size_t i = 0; i < grid->dims.size(); ++i) {
      cell = cell * grid->counts[i] +
             tile.box.offsets[grid->dims[i]] / grid->chunks[i];
    }
    return static_cast<size_t>(cell);
  };
  for (const Tile* tile : full) {
    const size_t cell = cell_of(*tile);
    if (cell >= ranks.size() || ranks[cell] >= 0) {
      return std::nullopt;
    }
    ranks[cell] = tile->rank;
  }
  auto next_empty = empty.begin();
  for (int64_t& rank : ranks) {
    if (rank < 0) {
      rank = (*next_empty++)->rank;
    }
  }
  Placements placements;
  for (size_t d : grid->dims) {
    placements.push_back(Shard(static_cast<int64_t>(d)));
  }
  Layout layout(shape_, MeshShape::from_ranks(ranks, grid->counts), placements);
  for (const Tile* tile : full) {
    if (layout.box(*layout.mesh().coordinate_of(tile->rank)) != tile->box) {
      return std::nullopt;
    }
  }
  return layout;
}

}  // namespace tessera
