#include <tessera/layout/box_layout.h>

#include <algorithm>
#include <set>

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <tessera/layout/notation.h>

#include "base/text.h"
#include "layout/arithmetic.h"
#include "layout/boxes/box_cover.h"

namespace tessera {
namespace {

using detail::Runs;
using detail::Tile;

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

}  // namespace tessera
