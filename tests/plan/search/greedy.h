// A planner that looks at one mesh dim after the other, without choice: last to
// first it undoes what is in the way or brings the dim to its target where
// earlier mesh dims cut alike, then first to last it cuts. The price to beat.
#pragma once

#include <algorithm>
#include <vector>

#include <tessera/plan/cost.h>

#include "plan/search/simulate.h"

namespace tessera::greedy {

struct Total {
  double cost = 0;
  int64_t bytes = 0;
  // No collective needs more than source + target + the largest message.
  bool fits_memory = true;
};

/// Returns the elements of the largest shard, by listing all of them.
inline int64_t largest(const Layout& layout) {
  size_t most = 0;
  for (const auto& at : reference::coordinates(layout.mesh().sizes())) {
    most = std::max(most, simulation::indices(layout, at).size());
  }
  return static_cast<int64_t>(most);
}

class Planner {
 public:
  Planner(const Layout& source, const Layout& target, const MachineModel& model)
      : source_(source), current_(source), target_(target), model_(model) {}

  /// Both layouts are on one mesh, without turns.
  Total run() {
    const auto n = static_cast<int64_t>(target_.placements().size());
    for (int64_t m = n; m-- > 0;) {
      const bool aligned = is_aligned(m);
      if (at(current_, m) != at(target_, m) || !aligned) {
        const bool direct = aligned && !at(current_, m).is_replicate() &&
                            !at(target_, m).is_partial();
        move(m, direct ? at(target_, m) : Replicate());
      }
    }
    for (int64_t m = 0; m < n; ++m) {
      move(m, at(target_, m));
    }
    return total_;
  }

 private:
  static const Placement& at(const Layout& layout, int64_t m) {
    return layout.placements()[static_cast<size_t>(m)];
  }

  // Tells whether mesh dims before m cut the dims of m alike now and in the
  // target.
  bool is_aligned(int64_t m) const {
    for (const Placement* p : {&at(target_, m), &at(current_, m)}) {
      for (int64_t before = 0; p->is_shard() && before < m; ++before) {
        const Placement& now = at(current_, before);
        const Placement& then = at(target_, before);
        if ((now.is_shard(p->dim()) || then.is_shard(p->dim())) &&
            now != then) {
          return false;
        }
      }
    }
    return true;
  }

  void move(int64_t m, const Placement& to) {
    const Placement from = at(current_, m);
    if (from == to) {
      return;
    }
    Placements placements = current_.placements();
    placements[static_cast<size_t>(m)] = to;
    const Layout next(current_.shape(), current_.mesh(), placements);
    const int64_t n = current_.mesh().size(m);
    const int64_t after = largest(next);
    const int64_t before = largest(current_);
    const int64_t larger = std::max(before, after);
    const bool local = from.is_replicate();
    const bool all_reduce = from.is_partial() && to.is_replicate();
    const int64_t limit = largest(target_) + std::max(larger, largest(source_));
    total_.fits_memory =
        total_.fits_memory &&
        (local || all_reduce || current_ == source_ || before + after <= limit);
    const int64_t times = local ? 0 : all_reduce ? 2 : 1;
    const int64_t bytes = 4 * times * (larger - larger / n);
    const Link link = model_.over({m});
    total_.bytes += bytes;
    int64_t rounds = 0;
    for (int64_t heard = 1; heard < n; heard *= 2) {
      ++rounds;
    }
    total_.cost += static_cast<double>(times * rounds) * link.latency +
                   static_cast<double>(bytes) / link.bandwidth +
                   static_cast<double>(4 * after) / model_.copy_bandwidth;
    current_ = next;
  }

  const Layout& source_;
  Layout current_;
  const Layout& target_;
  const MachineModel& model_;
  Total total_;
};

}  // namespace tessera::greedy
