// Random tilings of a shape: guillotine cuts, pinwheels, several tiles per
// rank, empty tiles, ranks in any order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/layout/box_layout.h>

#include "layout/random_case.h"

namespace tessera {

/// Cuts a box in two along a dim where it has two indices or more.
inline void guillotine(Random& random, std::vector<Box>& boxes, size_t which) {
  const auto d = static_cast<size_t>(
      random.between(0, std::max<int64_t>(boxes[which].ndim() - 1, 0)));
  if (boxes[which].ndim() == 0 || boxes[which].sizes[d] < 2) {
    return;
  }
  Box rest = boxes[which];
  const int64_t at = random.between(1, rest.sizes[d] - 1);
  boxes[which].sizes[d] = at;
  rest.offsets[d] += at;
  rest.sizes[d] -= at;
  boxes.push_back(std::move(rest));
}

/// Cuts a box of at least 3 x 3 in its first two dims into four arms around a
/// centre, which no series of guillotine cuts makes.
inline void pinwheel(Random& random, std::vector<Box>& boxes, size_t which) {
  const Box box = boxes[which];
  if (box.ndim() < 2 || box.sizes[0] < 3 || box.sizes[1] < 3) {
    return;
  }
  const auto cuts = [&](size_t d) {
    const int64_t first = random.between(1, box.sizes[d] - 2);
    return std::pair(first, random.between(first + 1, box.sizes[d] - 1));
  };
  const auto [r, s] = cuts(0);
  const auto [c, e] = cuts(1);
  const auto part = [&](int64_t top, int64_t bottom, int64_t left,
                        int64_t right) {
    Box result = box;
    result.offsets[0] += top;
    result.offsets[1] += left;
    result.sizes[0] = bottom - top;
    result.sizes[1] = right - left;
    return result;
  };
  boxes[which] = part(0, r, 0, e);
  boxes.push_back(part(0, s, e, box.sizes[1]));
  boxes.push_back(part(s, box.sizes[0], c, box.sizes[1]));
  boxes.push_back(part(r, box.sizes[0], 0, c));
  boxes.push_back(part(r, s, c, e));
}

/// Returns a tiling with at most about `cuts` cuts, tiles of `ranks` in any
/// order.
inline BoxLayout random_tiling(
    Random& random, const std::vector<int64_t>& shape,
    const std::vector<int64_t>& ranks, int64_t cuts) {
  std::vector<Box> boxes{whole(shape)};
  for (int64_t i = 0; i < cuts; ++i) {
    const auto which = static_cast<size_t>(
        random.between(0, static_cast<int64_t>(boxes.size()) - 1));
    random.between(0, 2) == 0 ? pinwheel(random, boxes, which)
                              : guillotine(random, boxes, which);
  }
  for (int64_t i = random.between(0, shape.empty() ? 0 : 2); i > 0; --i) {
    Box empty = whole(shape);
    const auto d = static_cast<size_t>(
        random.between(0, static_cast<int64_t>(shape.size()) - 1));
    empty.offsets[d] = random.between(0, shape[d]);
    empty.sizes[d] = 0;
    boxes.push_back(std::move(empty));
  }
  std::vector<BoxLayout::Tile> tiles;
  for (Box& box : boxes) {
    tiles.push_back(
        {std::move(box),
         ranks[static_cast<size_t>(
             random.between(0, static_cast<int64_t>(ranks.size()) - 1))],
         ""});
  }
  for (size_t i = tiles.size(); i-- > 1;) {
    std::swap(
        tiles[i],
        tiles[static_cast<size_t>(random.between(0, static_cast<int64_t>(i)))]);
  }
  return BoxLayout(shape, std::move(tiles));
}

/// Prints the tiles, for messages.
inline std::string to_text(const BoxLayout& layout) {
  std::string text;
  for (const BoxLayout::Tile& tile : layout.tiles()) {
    text.append(" ").append(to_string(tile.box));
    text.append("@").append(std::to_string(tile.rank));
  }
  return text;
}

}  // namespace tessera
