// Note [Finding an overlap]
// Two boxes share an element iff their runs meet in every dim, and two runs
// meet iff one of them holds the begin of the other. Number the boxes by begin
// along a dim (ties by position): box b then "reaches" the numbers after its
// own up to the last begin inside its run, and of two boxes whose runs meet
// exactly one reaches the other.
//
// Along one dim, halve the numbers again and again, as in a segment tree. A box
// that reaches all numbers of a node meets all boxes numbered there, so the two
// groups are compared in the remaining dims; otherwise it goes down to the
// halves that it reaches in part. A box is in O(log n) groups per dim. In the
// last dim (dim 0) one pass over both groups, kept in the order of begins,
// answers. Together O(n log n) in one or two dims, O(n log^(d-1) n) beyond.
#include <algorithm>
#include <numeric>

#include <c10/util/Exception.h>
#include <tessera/layout/box.h>

#include "layout/arithmetic.h"

namespace tessera {
namespace {

using Pair = std::pair<size_t, size_t>;
using Ids = std::vector<size_t>;

class OverlapSearch {
 public:
  explicit OverlapSearch(const std::vector<Box>& boxes) : boxes_(boxes) {}

  std::optional<Pair> run() {
    Ids ids = non_empty();
    if (ids.size() < 2) {
      return std::nullopt;
    }
    choose_dims(ids);
    if (dims_.empty()) {
      return Pair(ids[0], ids[1]);  // every run meets every other
    }
    sort_by_begin(ids, 0);
    if (dims_.size() == 1) {
      return sweep(ids);
    }
    number(ids);
    const auto found = search(
        {ids, ids}, {0, ids.size()}, static_cast<size_t>(dims_.size() - 1));
    return found ? std::optional(std::minmax(found->first, found->second))
                 : std::nullopt;
  }

 private:
  struct Groups {
    Ids reaching;
    Ids numbered;
  };
  struct Range {
    size_t begin;
    size_t end;
  };

  int64_t begin(size_t id, size_t k) const {
    return boxes_[id].offsets[dims_[k]];
  }
  int64_t end(size_t id, size_t k) const { return end_along(id, dims_[k]); }

  int64_t end_along(size_t id, size_t d) const {
    return detail::end_of(boxes_[id].offsets[d], boxes_[id].sizes[d]);
  }

  Ids non_empty() const {
    Ids ids;
    for (size_t id = 0; id < boxes_.size(); ++id) {
      TORCH_CHECK_VALUE(
          boxes_[id].ndim() == boxes_[0].ndim(),
          "find_overlap: boxes must have as many dims; got ",
          to_string(boxes_[0]), " at position 0 and ", to_string(boxes_[id]),
          " at position ", id);
      if (!boxes_[id].empty()) {
        ids.push_back(id);
      }
    }
    return ids;
  }

  // A dim along which all runs meet tells nothing.
  void choose_dims(const Ids& ids) {
    for (size_t d = 0; d < boxes_[ids[0]].sizes.size(); ++d) {
      int64_t last_begin = boxes_[ids[0]].offsets[d];
      int64_t first_end = end_along(ids[0], d);
      for (size_t id : ids) {
        last_begin = std::max(last_begin, boxes_[id].offsets[d]);
        first_end = std::min(first_end, end_along(id, d));
      }
      if (last_begin >= first_end) {
        dims_.push_back(d);
      }
    }
  }

  void sort_by_begin(Ids& ids, size_t k) const {
    std::sort(ids.begin(), ids.end(), [&](size_t a, size_t b) {
      return std::pair(begin(a, k), a) < std::pair(begin(b, k), b);
    });
  }

  // One dim: of boxes sorted by begin, neighbours meet if any two do.
  std::optional<Pair> sweep(const Ids& ids) const {
    for (size_t i = 1; i < ids.size(); ++i) {
      if (end(ids[i - 1], 0) > begin(ids[i], 0)) {
        return std::minmax(ids[i - 1], ids[i]);
      }
    }
    return std::nullopt;
  }

  void number(const Ids& ids) {
    reach_.assign(dims_.size(), std::vector<Range>(boxes_.size()));
    for (size_t k = 1; k < dims_.size(); ++k) {
      Ids sorted = ids;
      sort_by_begin(sorted, k);
      for (size_t i = 0; i < sorted.size(); ++i) {
        const auto past = std::partition_point(
            sorted.begin() + static_cast<std::ptrdiff_t>(i), sorted.end(),
            [&](size_t other) { return begin(other, k) < end(sorted[i], k); });
        reach_[k][sorted[i]] = {
            i + 1, static_cast<size_t>(past - sorted.begin())};
      }
    }
  }

  // Finds a pair of a reaching and a numbered box that meet in dims 0 .. k,
  // where the former reaches the latter along dim k. Numbers lie in `node`.
  std::optional<Pair> search(Groups groups, Range node, size_t k) const {
    if (groups.reaching.empty() || groups.numbered.empty()) {
      return std::nullopt;
    }
    const size_t middle = node.begin + (node.end - node.begin) / 2;
    Ids all;  // reach every number of the node
    Groups left, right;
    for (size_t id : groups.reaching) {
      const Range reach = reach_[k][id];
      if (reach.begin <= node.begin && node.end <= reach.end) {
        all.push_back(id);
        continue;
      }
      if (reach.begin < middle && node.begin < reach.end) {
        left.reaching.push_back(id);
      }
      if (middle < reach.end && reach.begin < node.end) {
        right.reaching.push_back(id);
      }
    }
    if (auto found = descend(all, groups.numbered, k - 1)) {
      return found;
    }
    for (size_t id : groups.numbered) {
      const bool is_left = reach_[k][id].begin - 1 < middle;
      (is_left ? left : right).numbered.push_back(id);
    }
    groups = {};
    if (auto found = search(std::move(left), {node.begin, middle}, k)) {
      return found;
    }
    return search(std::move(right), {middle, node.end}, k);
  }

  // Finds a pair of `a` and `b`, disjoint groups that meet beyond dim k.
  std::optional<Pair> descend(const Ids& a, const Ids& b, size_t k) const {
    if (a.empty() || b.empty()) {
      return std::nullopt;
    }
    if (k == 0) {
      return merge(a, b);
    }
    const Range root{0, boxes_.size()};
    if (auto found = search({a, b}, root, k)) {
      return found;
    }
    return search({b, a}, root, k);
  }

  // Dim 0: walk both groups by begin; a box meets an earlier one of the other
  // group iff the farthest end there lies beyond its begin.
  std::optional<Pair> merge(const Ids& a, const Ids& b) const {
    size_t i = 0, j = 0;
    size_t far_a = a[0], far_b = b[0];
    while (i < a.size() || j < b.size()) {
      const bool take_a =
          j == b.size() || (i < a.size() && begin(a[i], 0) <= begin(b[j], 0));
      const size_t id = take_a ? a[i++] : b[j++];
      const bool other_seen = take_a ? j > 0 : i > 0;
      const size_t other = take_a ? far_b : far_a;
      if (other_seen && end(other, 0) > begin(id, 0)) {
        return Pair(id, other);
      }
      size_t& far = take_a ? far_a : far_b;
      far = end(id, 0) > end(far, 0) ? id : far;
    }
    return std::nullopt;
  }

  const std::vector<Box>& boxes_;
  std::vector<size_t> dims_;               // those that tell boxes apart
  std::vector<std::vector<Range>> reach_;  // per dim and box, as numbers
};

}  // namespace

std::optional<std::pair<size_t, size_t>> find_overlap(
    const std::vector<Box>& boxes) {
  return OverlapSearch(boxes).run();
}

}  // namespace tessera
