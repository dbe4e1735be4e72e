// Compares everything that a Layout answers with the reference.
#pragma once

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "layout/reference.h"

namespace tessera::reference {

/// What the reference says about one layout.
class OwnerMap {
 public:
  OwnerMap(const Layout& layout, const Placements& given)
      : shape_(layout.shape()),
        coordinates_(reference::coordinates(layout.mesh().sizes())) {
    const List sizes = layout.mesh().sizes();
    for (const List& coordinate : coordinates_) {
      std::vector<List> lists;
      for (size_t d = 0; d < shape_.size(); ++d) {
        lists.push_back(reference::held(
            shape_[d], static_cast<int64_t>(d), sizes, given, coordinate));
      }
      held_.push_back(lists);
    }
  }

  const std::vector<List>& coordinates() const { return coordinates_; }
  /// Returns the indices of each tensor dim at the i-th coordinate.
  const std::vector<List>& held(size_t i) const { return held_[i]; }

  bool holds(size_t i, const List& index) const {
    for (size_t d = 0; d < index.size(); ++d) {
      const List& list = held_[i][d];
      if (std::find(list.begin(), list.end(), index[d]) == list.end()) {
        return false;
      }
    }
    return true;
  }

  /// Tells whether the i-th coordinate holds an element of `box`.
  bool meets(size_t i, const Box& box) const {
    for (size_t d = 0; d < shape_.size(); ++d) {
      const bool some =
          std::any_of(held_[i][d].begin(), held_[i][d].end(), [&](int64_t x) {
            return x >= box.offsets[d] && x < box.offsets[d] + box.sizes[d];
          });
      if (!some) {
        return false;
      }
    }
    return true;
  }

 private:
  List shape_;
  std::vector<List> coordinates_;
  std::vector<std::vector<List>> held_;
};

/// Groups ascending indices into runs.
inline Layout::Runs runs_of(const List& list) {
  Layout::Runs runs;
  for (int64_t x : list) {
    if (runs.empty() || runs.back().end != x) {
      runs.push_back({x, x});
    }
    runs.back().end = x + 1;
  }
  return runs;
}

/// Returns the products of runs, the last dim's runs varying fastest.
inline std::vector<Box> boxes_of(const std::vector<Layout::Runs>& runs) {
  std::vector<Box> boxes{{}};
  for (const Layout::Runs& of_dim : runs) {
    std::vector<Box> longer;
    for (const Box& front : boxes) {
      for (const Layout::Run& run : of_dim) {
        longer.push_back(front);
        longer.back().offsets.push_back(run.begin);
        longer.back().sizes.push_back(run.length());
      }
    }
    boxes = longer;
  }
  return boxes;
}

inline void expect_shards_agree(const Layout& layout, const OwnerMap& map) {
  for (size_t i = 0; i < map.coordinates().size(); ++i) {
    const List& coordinate = map.coordinates()[i];
    List shape, first;
    std::vector<Layout::Runs> runs;
    bool one_box = true;
    for (size_t d = 0; d < layout.shape().size(); ++d) {
      const List& list = map.held(i)[d];
      runs.push_back(runs_of(list));
      ASSERT_EQ(layout.runs(static_cast<int64_t>(d), coordinate), runs[d])
          << layout << " dim " << d << " at " << i;
      one_box = one_box && runs[d].size() <= 1;
      shape.push_back(static_cast<int64_t>(list.size()));
      first.push_back(list.empty() ? layout.shape()[d] : list.front());
    }
    ASSERT_EQ(layout.local_shape(coordinate), shape) << layout << " at " << i;
    ASSERT_EQ(layout.boxes(coordinate), boxes_of(runs))
        << layout << " at " << i;
    if (one_box) {
      ASSERT_EQ(layout.box(coordinate), (Box{first, shape}))
          << layout << " at " << i;
    } else {
      ASSERT_ANY_THROW(layout.box(coordinate)) << layout << " at " << i;
    }
  }
}

inline void expect_owners_agree(
    const Layout& layout, const Placements& given, const OwnerMap& map) {
  for (const List& index : coordinates(layout.shape())) {
    List ranks;
    size_t first = map.coordinates().size();
    for (size_t i = 0; i < map.coordinates().size(); ++i) {
      if (map.holds(i, index)) {
        ranks.push_back(layout.mesh().rank_at(map.coordinates()[i]));
        first = std::min(first, i);
      }
    }
    ASSERT_LT(first, map.coordinates().size()) << "nobody holds it: " << layout;
    List owner = map.coordinates()[first];
    for (size_t m = 0; m < owner.size(); ++m) {
      owner[m] = given[m].is_shard() ? owner[m] : -1;
    }
    List local;
    for (size_t d = 0; d < index.size(); ++d) {
      const List& list = map.held(first)[d];
      local.push_back(
          std::find(list.begin(), list.end(), index[d]) - list.begin());
    }
    std::sort(ranks.begin(), ranks.end());
    ASSERT_EQ(layout.owner(index), owner) << layout;
    ASSERT_EQ(layout.owner_ranks(index), ranks) << layout;
    ASSERT_EQ(layout.local_index(index), local) << layout;
  }
}

inline void expect_holders_agree(
    const Layout& layout, const OwnerMap& map, const Box& box) {
  List ranks;
  for (size_t i = 0; i < map.coordinates().size(); ++i) {
    if (map.meets(i, box)) {
      ranks.push_back(layout.mesh().rank_at(map.coordinates()[i]));
    }
  }
  std::sort(ranks.begin(), ranks.end());
  ASSERT_EQ(layout.ranks_holding(box), ranks) << layout << " box " << box;
}

/// The shards of the coordinates that differ in cut mesh dims only tile the
/// tensor.
inline void expect_exact_cover(const Layout& layout, const Placements& given) {
  std::vector<Box> boxes;
  for (const List& coordinate : coordinates(layout.mesh().sizes())) {
    bool first_copy = true;
    for (size_t m = 0; m < coordinate.size(); ++m) {
      first_copy = first_copy && (given[m].is_shard() || coordinate[m] == 0);
    }
    if (first_copy) {
      const auto more = layout.boxes(coordinate);
      boxes.insert(boxes.end(), more.begin(), more.end());
    }
  }
  ASSERT_TRUE(is_exact_cover(boxes, whole(layout.shape()))) << layout;
  ASSERT_FALSE(find_overlap(boxes).has_value()) << layout;
}

}  // namespace tessera::reference
