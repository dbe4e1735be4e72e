#include "plan/transfer/exchange_tiles.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <unordered_map>

#include <c10/util/Exception.h>
#include <tessera/layout/notation.h>
#include <tessera/plan/exchange.h>

namespace tessera {
namespace {

using detail::Tile;

int64_t end_of(const Box& box, size_t d) {
  return box.offsets[d] + box.sizes[d];  // within the shape: no overflow
}

int64_t shared_numel(const Box& a, const Box& b) {
  int64_t count = 1;
  for (size_t d = 0; d < a.sizes.size(); ++d) {
    const int64_t length = std::min(end_of(a, d), end_of(b, d)) -
                           std::max(a.offsets[d], b.offsets[d]);
    if (length <= 0) {
      return 0;
    }
    count *= length;
  }
  return count;
}

std::vector<const Box*> boxes_of(const std::vector<Box>& boxes) {
  std::vector<const Box*> result;
  for (const Box& box : boxes) {
    result.push_back(&box);
  }
  return result;
}

std::vector<const Box*> boxes_of(const BoxLayout& layout) {
  std::vector<const Box*> result;
  for (const Tile& tile : layout.tiles()) {
    result.push_back(&tile.box);
  }
  return result;
}

// Boxes sorted by begin along the dim in which they begin at the most places.
// Beside each stands the farthest end up to there: it never falls, so boxes
// that meet a run are found between two binary searches.
class BoxIndex {
 public:
  // The boxes, or the layout, must outlive the index.
  template <class Boxes>
  explicit BoxIndex(const Boxes& boxes) : boxes_(boxes_of(boxes)) {
    for (size_t i = 0; i < boxes_.size(); ++i) {
      if (!boxes_[i]->empty()) {
        order_.push_back(i);
      }
    }
    dim_ = busiest_dim();
    if (dim_) {
      std::stable_sort(order_.begin(), order_.end(), [&](size_t a, size_t b) {
        return begin(a) < begin(b);
      });
    }
    for (const size_t i : order_) {
      const int64_t end = dim_ ? end_of(*boxes_[i], *dim_) : 0;
      farthest_.push_back(
          farthest_.empty() ? end : std::max(farthest_.back(), end));
    }
  }

  // Calls f(position, elements) for the boxes that share elements with `box`
  // until it returns false; tells whether it never did.
  template <class F>
  bool for_each(const Box& box, const F& f) const {
    for (size_t k = first(box); k < order_.size(); ++k) {
      const size_t i = order_[k];
      if (dim_ && begin(i) >= end_of(box, *dim_)) {
        return true;
      }
      const int64_t shared = shared_numel(*boxes_[i], box);
      if (shared > 0 && !f(i, shared)) {
        return false;
      }
    }
    return true;
  }

 private:
  int64_t begin(size_t i) const { return boxes_[i]->offsets[*dim_]; }

  std::optional<size_t> busiest_dim() const {
    std::optional<size_t> result;
    size_t most = 0;
    const size_t ndim = boxes_.empty() ? 0 : boxes_[0]->sizes.size();
    for (size_t d = 0; d < ndim; ++d) {
      std::set<int64_t> begins;
      for (const size_t i : order_) {
        begins.insert(boxes_[i]->offsets[d]);
      }
      if (begins.size() > most) {
        most = begins.size();
        result = d;
      }
    }
    return result;
  }

  size_t first(const Box& box) const {
    if (!dim_) {
      return 0;
    }
    const auto at = std::partition_point(
        farthest_.begin(), farthest_.end(),
        [&](int64_t end) { return end <= box.offsets[*dim_]; });
    return static_cast<size_t>(at - farthest_.begin());
  }

  std::vector<const Box*> boxes_;
  std::optional<size_t> dim_;
  std::vector<size_t> order_;
  std::vector<int64_t> farthest_;
};

void check(const char* call, const BoxLayout& source, const BoxLayout& target) {
  TORCH_CHECK_VALUE(
      source.shape() == target.shape(), call,
      ": both tilings must have one shape; got ",
      shape_to_string(source.shape()), " and ",
      shape_to_string(target.shape()));
}

// What each rank sends and receives.
struct Traffic {
  int64_t sent = 0;
  int64_t received = 0;
  int64_t larger() const { return std::max(sent, received); }
};

}  // namespace

namespace detail::inline plan_layer {

std::vector<BoxPair> box_pairs(
    const std::vector<Box>& source, const std::vector<Box>& target) {
  const BoxIndex held(source);
  std::vector<BoxPair> pairs;
  for (size_t t = 0; t < target.size(); ++t) {
    const size_t first = pairs.size();
    held.for_each(target[t], [&](size_t s, int64_t) {
      pairs.push_back({s, t});
      return true;
    });
    std::sort(
        pairs.begin() + static_cast<int64_t>(first), pairs.end(),
        [](const BoxPair& a, const BoxPair& b) { return a.source < b.source; });
  }
  return pairs;
}

std::vector<BoxPair> tile_pairs(
    const BoxLayout& source, const BoxLayout& target, int64_t rank) {
  std::vector<BoxPair> pairs;
  const BoxIndex held(source);
  for (size_t t = 0; t < target.tiles().size(); ++t) {
    if (target.tiles()[t].rank == rank) {
      held.for_each(target.tiles()[t].box, [&](size_t s, int64_t) {
        pairs.push_back({s, t});
        return true;
      });
    }
  }
  const BoxIndex wanted(target);
  for (size_t s = 0; s < source.tiles().size(); ++s) {
    if (source.tiles()[s].rank == rank) {
      wanted.for_each(source.tiles()[s].box, [&](size_t t, int64_t) {
        if (target.tiles()[t].rank != rank) {
          pairs.push_back({s, t});
        }
        return true;
      });
    }
  }
  const auto key = [&](const BoxPair& pair) {
    return std::tuple(
        target.tiles()[pair.target].rank, source.tiles()[pair.source].rank,
        pair.target, pair.source);
  };
  std::sort(
      pairs.begin(), pairs.end(),
      [&](const BoxPair& a, const BoxPair& b) { return key(a) < key(b); });
  return pairs;
}

}  // namespace detail::inline plan_layer

std::vector<Transfer> exchange_transfers(
    const BoxLayout& source, const BoxLayout& target, int64_t rank) {
  check("exchange_transfers", source, target);
  std::vector<Transfer> result;
  for (const auto& pair : detail::tile_pairs(source, target, rank)) {
    const Tile& from = source.tiles()[pair.source];
    const Tile& to = target.tiles()[pair.target];
    result.push_back({from.rank, to.rank, *intersect(from.box, to.box)});
  }
  return result;
}

int64_t exchange_elements(const BoxLayout& source, const BoxLayout& target) {
  check("exchange_elements", source, target);
  const BoxIndex held(source);
  std::unordered_map<int64_t, Traffic> traffic;
  std::vector<Traffic*> senders;
  for (const Tile& tile : source.tiles()) {
    senders.push_back(&traffic[tile.rank]);  // map nodes do not move
  }
  for (const Tile& tile : target.tiles()) {
    Traffic& receiver = traffic[tile.rank];
    held.for_each(tile.box, [&](size_t s, int64_t shared) {
      if (senders[s] != &receiver) {
        senders[s]->sent += shared;
        receiver.received += shared;
      }
      return true;
    });
  }
  int64_t most = 0;
  for (const auto& [rank, of] : traffic) {
    most = std::max(most, of.larger());
  }
  return most;
}

int64_t exchange_elements_on(
    const BoxLayout& source, const BoxLayout& target, int64_t rank) {
  check("exchange_elements_on", source, target);
  Traffic of;
  for (const auto& pair : detail::tile_pairs(source, target, rank)) {
    const Tile& from = source.tiles()[pair.source];
    const Tile& to = target.tiles()[pair.target];
    if (from.rank != to.rank) {
      (from.rank == rank ? of.sent : of.received) +=
          shared_numel(from.box, to.box);
    }
  }
  return of.larger();
}

bool stays_in_place(const BoxLayout& source, const BoxLayout& target) {
  check("stays_in_place", source, target);
  const BoxIndex held(source);
  return std::all_of(
      target.tiles().begin(), target.tiles().end(), [&](const Tile& tile) {
        return held.for_each(tile.box, [&](size_t s, int64_t) {
          return source.tiles()[s].rank == tile.rank;
        });
      });
}

}  // namespace tessera
