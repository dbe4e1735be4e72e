// Boxes of shards, and the inverse: who holds an element or a box.
#include <algorithm>

#include <c10/util/Exception.h>
#include <tessera/layout/layout.h>
#include <tessera/layout/notation.h>

#include "base/text.h"
#include "layout/arithmetic.h"
#include "layout/cut.h"

namespace tessera {

namespace {
using detail::Run;
using detail::Runs;
}  // namespace

using detail::Cut;

void Layout::check_index(
    const char* call, const std::vector<int64_t>& index) const {
  bool inside = index.size() == shape_.size();
  for (size_t d = 0; inside && d < index.size(); ++d) {
    inside = index[d] >= 0 && index[d] < shape_[d];
  }
  TORCH_CHECK_INDEX(
      inside, call, " of ", to_string(*this),
      ": the index must lie inside the shape; got [", base::join(index, ", "),
      "]");
}

namespace {

// The cuts of one tensor dim at one coordinate, with the length of the list
// that each of them cuts.
struct Chain {
  struct Link {
    Cut cut;
    int64_t coordinate;
    int64_t length;
  };
  std::vector<Link> links;
  int64_t length;  // of the shard

  // Returns the tensor index of element `i` of the shard.
  int64_t tensor_index(int64_t i) const {
    for (size_t k = links.size(); k-- > 0;) {
      const auto& [cut, r, full_length] = links[k];
      i = cut.list_position(full_length, r, i);
    }
    return i;
  }
};

}  // namespace

// A part keeps the order of the list, so a shard is one run iff its first and
// its last element are as far apart as one run would have them.
Box Layout::box(const std::vector<int64_t>& coordinate) const {
  check_coordinate("Layout::box", coordinate);
  Box box = whole(shape_);
  for (size_t d = 0; d < shape_.size(); ++d) {
    Chain chain{{}, shape_[d]};
    for (int64_t m : cuts_[d]) {
      const int64_t r = coordinate[static_cast<size_t>(m)];
      chain.links.push_back({cut(m), r, chain.length});
      chain.length = cut(m).part_length(chain.length, r);
    }
    box.sizes[d] = chain.length;
    if (chain.length == 0) {
      box.offsets[d] = shape_[d];
      continue;
    }
    box.offsets[d] = chain.tensor_index(0);
    const int64_t last = chain.tensor_index(chain.length - 1);
    TORCH_CHECK_VALUE(
        last - box.offsets[d] + 1 == chain.length, "Layout::box of ",
        to_string(*this), ": the shard at coordinate [",
        base::join(coordinate, ", "), "] holds several runs of tensor dim ", d,
        "; use boxes()");
  }
  return box;
}

std::vector<Box> Layout::boxes(const std::vector<int64_t>& coordinate) const {
  check_coordinate("Layout::boxes", coordinate);
  std::vector<Runs> runs_of;
  std::vector<int64_t> limits;
  for (size_t d = 0; d < shape_.size(); ++d) {
    runs_of.push_back(runs(static_cast<int64_t>(d), coordinate));
    limits.push_back(static_cast<int64_t>(runs_of[d].size()));
    if (runs_of[d].empty()) {
      return {};
    }
  }
  std::vector<Box> result;
  std::vector<int64_t> digits(shape_.size(), 0);
  do {
    Box box = whole(shape_);
    for (size_t d = 0; d < shape_.size(); ++d) {
      const Run& run = runs_of[d][static_cast<size_t>(digits[d])];
      box.offsets[d] = run.begin;
      box.sizes[d] = run.length();
    }
    result.push_back(std::move(box));
  } while (detail::next_row_major(digits, limits));
  return result;
}

std::vector<int64_t> Layout::owner(const std::vector<int64_t>& index) const {
  check_index("Layout::owner", index);
  std::vector<int64_t> result(placements_.size(), -1);
  for (size_t d = 0; d < shape_.size(); ++d) {
    int64_t position = index[d];
    int64_t length = shape_[d];
    for (int64_t m : cuts_[d]) {
      const detail::CutTarget target = cut(m).target_of(length, position);
      result[static_cast<size_t>(m)] = target.coordinate;
      position = target.position;
      length = cut(m).part_length(length, target.coordinate);
    }
  }
  return result;
}

std::vector<int64_t> Layout::local_index(
    const std::vector<int64_t>& index) const {
  check_index("Layout::local_index", index);
  std::vector<int64_t> result = index;
  for (size_t d = 0; d < shape_.size(); ++d) {
    int64_t length = shape_[d];
    for (int64_t m : cuts_[d]) {
      const detail::CutTarget target = cut(m).target_of(length, result[d]);
      result[d] = target.position;
      length = cut(m).part_length(length, target.coordinate);
    }
  }
  return result;
}

namespace {

using Coordinates = std::vector<std::vector<int64_t>>;

// Replaces every coordinate by its copies with 0 .. size-1 in mesh dim m.
Coordinates spread(
    const Coordinates& coordinates, int64_t mesh_dim, int64_t size) {
  Coordinates result;
  for (std::vector<int64_t> coordinate : coordinates) {
    for (int64_t x = 0; x < size; ++x) {
      coordinate[static_cast<size_t>(mesh_dim)] = x;
      result.push_back(coordinate);
    }
  }
  return result;
}

std::vector<int64_t> sorted_ranks(
    const MeshShape& mesh, const Coordinates& coordinates) {
  std::vector<int64_t> ranks;
  ranks.reserve(coordinates.size());
  for (const auto& coordinate : coordinates) {
    ranks.push_back(mesh.rank_at(coordinate));
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

// A coordinate whose later cuts are still open, with the range of its list that
// is asked for.
struct Holder {
  std::vector<int64_t> coordinate;
  int64_t length;
  Run wanted;
};

// Gives every holder's range to the coordinates of mesh dim m that hold some of
// it.
std::vector<Holder> pass_down(
    const std::vector<Holder>& holders, int64_t mesh_dim, const Cut& cut) {
  std::vector<Holder> result;
  for (const Holder& holder : holders) {
    const auto& [coordinate, length, wanted] = holder;
    const Run range = cut.holders(length, wanted);
    for (int64_t r = range.begin; r < range.end; ++r) {
      const Run part{
          cut.count_before(length, r, wanted.begin),
          cut.count_before(length, r, wanted.end)};
      if (part.length() > 0) {
        result.push_back({coordinate, cut.part_length(length, r), part});
        result.back().coordinate[static_cast<size_t>(mesh_dim)] = r;
      }
    }
  }
  return result;
}

}  // namespace

std::vector<int64_t> Layout::owner_ranks(
    const std::vector<int64_t>& index) const {
  Coordinates coordinates{owner(index)};
  for (int64_t m = 0; m < mesh_.ndim(); ++m) {
    if (!placements_[static_cast<size_t>(m)].is_shard()) {
      coordinates = spread(coordinates, m, mesh_.size(m));
    }
  }
  return sorted_ranks(mesh_, coordinates);
}

std::vector<int64_t> Layout::ranks_holding(const Box& box) const {
  TORCH_CHECK_VALUE(
      box.sizes.size() == shape_.size(), "Layout::ranks_holding of ",
      to_string(*this), ": the box must have as many dims as the shape; got ",
      box);
  const auto inside = intersect(box, whole(shape_));
  if (!inside) {
    return {};
  }
  Coordinates coordinates{std::vector<int64_t>(placements_.size(), 0)};
  for (size_t d = 0; d < shape_.size(); ++d) {
    const Run wanted{inside->offsets[d], inside->offsets[d] + inside->sizes[d]};
    std::vector<Holder> holders;
    for (auto& coordinate : coordinates) {
      holders.push_back({std::move(coordinate), shape_[d], wanted});
    }
    for (int64_t m : cuts_[d]) {
      holders = pass_down(holders, m, cut(m));
    }
    coordinates.clear();
    for (Holder& holder : holders) {
      coordinates.push_back(std::move(holder.coordinate));
    }
  }
  for (int64_t m = 0; m < mesh_.ndim(); ++m) {
    if (!placements_[static_cast<size_t>(m)].is_shard()) {
      coordinates = spread(coordinates, m, mesh_.size(m));
    }
  }
  return sorted_ranks(mesh_, coordinates);
}

}  // namespace tessera
