// Who holds what, straight from the definition of the placements: explicit
// lists of indices, cut by copying. Slow on purpose and written without a look
// at the library's arithmetic; tests compare the two.
#pragma once

#include <cstdint>
#include <vector>

#include <tessera/layout/layout.h>

namespace tessera::reference {

using List = std::vector<int64_t>;

/// Cuts a list into `count` consecutive parts of ceil(size / count), the last
/// ones shorter or empty: deal out elements until a part is full.
inline std::vector<List> chunks(const List& list, int64_t count) {
  size_t full = 0;
  while (full * static_cast<size_t>(count) < list.size()) {
    ++full;
  }
  std::vector<List> parts(static_cast<size_t>(count));
  size_t part = 0;
  for (int64_t element : list) {
    if (parts[part].size() == full) {
      ++part;
    }
    parts[part].push_back(element);
  }
  return parts;
}

/// Cuts a list among `count` coordinates as one placement says.
inline std::vector<List> cut(
    const Placement& placement, const List& list, int64_t count) {
  std::vector<List> parts(static_cast<size_t>(count));
  if (placement.kind() == Placement::Kind::kRaggedShard) {
    auto next = list.begin();
    for (size_t r = 0; r < parts.size(); ++r) {
      for (int64_t i = 0; i < placement.sizes()[r]; ++i) {
        parts[r].push_back(*next++);
      }
    }
    return parts;
  }
  for (const List& piece : chunks(list, placement.split_factor())) {
    const auto of_piece = chunks(piece, count);
    for (size_t r = 0; r < parts.size(); ++r) {
      parts[r].insert(parts[r].end(), of_piece[r].begin(), of_piece[r].end());
    }
  }
  return parts;
}

/// Returns the indices of one tensor dim at a coordinate, in storage order.
inline List held(
    int64_t size, int64_t tensor_dim, const List& mesh_sizes,
    const Placements& placements, const List& coordinate) {
  List list;
  for (int64_t i = 0; i < size; ++i) {
    list.push_back(i);
  }
  // Turn by turn; without turns the mesh dims have theirs from left to right.
  for (size_t turn = 0; turn < placements.size(); ++turn) {
    size_t nth = 0;
    for (size_t m = 0; m < placements.size(); ++m) {
      if (!placements[m].is_shard(tensor_dim)) {
        continue;
      }
      const int64_t order = placements[m].order();
      const size_t mine = order >= 0 ? static_cast<size_t>(order) : nth;
      ++nth;
      if (mine == turn) {
        list =
            cut(placements[m], list,
                mesh_sizes[m])[static_cast<size_t>(coordinate[m])];
        break;
      }
    }
  }
  return list;
}

/// Returns all coordinates of a mesh, row-major.
inline std::vector<List> coordinates(const List& mesh_sizes) {
  std::vector<List> result{{}};
  for (int64_t size : mesh_sizes) {
    std::vector<List> longer;
    for (const List& front : result) {
      for (int64_t x = 0; x < size; ++x) {
        longer.push_back(front);
        longer.back().push_back(x);
      }
    }
    result = longer;
  }
  return result;
}

}  // namespace tessera::reference
