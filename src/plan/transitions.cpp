#include "plan/transitions.h"

#include <algorithm>

namespace tessera::detail {
namespace {

class Moves {
 public:
  Moves(const States& states, State s) : states_(states), s_(s) {}

  std::vector<Move> all() {
    const int64_t n = states_.mesh_dims();
    for (int64_t m = 0; m < n; ++m) {
      one_dim(m);
    }
    for (int64_t first = 0; first < n; ++first) {
      for (int64_t last = first + 1; last < n; ++last) {
        gather(first, last);
        if (same_partial(first, last)) {
          reduce(first, last);
          scatter(first, last);
        }
      }
    }
    remaining_cuts();
    return std::move(moves_);
  }

 private:
  void add(StepKind kind, int64_t first, int64_t last, State to) {
    if (to != s_) {
      moves_.push_back({kind, first, last, to});
    }
  }

  void one_dim(int64_t m) {
    const Placement& p = states_.placement(s_, m);
    if (p.is_shard() && !states_.is_innermost(s_, m)) {
      return;
    }
    const State bare = states_.replicated(s_, m);
    StepKind to_cut = StepKind::kAllToAll;
    if (p.is_replicate()) {
      to_cut = StepKind::kCut;
      if (const auto to = states_.partial(s_, m)) {
        add(StepKind::kToPartial, m, m, *to);
      }
    } else if (p.is_partial()) {
      to_cut = StepKind::kReduceScatter;
      add(StepKind::kAllReduce, m, m, bare);
    } else {
      add(StepKind::kAllGather, m, m, bare);
    }
    for (const uint8_t cut : states_.cuts(m)) {
      if (const auto to = states_.cut(bare, m, cut)) {
        add(to_cut, m, m, *to);
      }
    }
  }

  // Undoes the cuts of first .. last, innermost first, where nothing else cuts
  // after them.
  void gather(int64_t first, int64_t last) {
    State to = s_;
    bool found = true;
    while (found) {
      found = false;
      for (int64_t m = first; m <= last; ++m) {
        if (states_.is_innermost(to, m)) {
          to = states_.replicated(to, m);
          found = true;
        }
      }
    }
    for (int64_t m = first; m <= last; ++m) {
      if (!states_.placement(s_, m).is_shard() ||
          !states_.placement(to, m).is_replicate()) {
        return;
      }
    }
    add(StepKind::kAllGather, first, last, to);
  }

  bool same_partial(int64_t first, int64_t last) const {
    const Placement& p = states_.placement(s_, first);
    for (int64_t m = first; m <= last; ++m) {
      if (!p.is_partial() || states_.placement(s_, m) != p) {
        return false;
      }
    }
    return true;
  }

  State without(int64_t first, int64_t last) const {
    State to = s_;
    for (int64_t m = first; m <= last; ++m) {
      to = states_.replicated(to, m);
    }
    return to;
  }

  void reduce(int64_t first, int64_t last) {
    add(StepKind::kAllReduce, first, last, without(first, last));
  }

  // Into cuts of one kind in mesh order, and into the target's.
  void scatter(int64_t first, int64_t last) {
    for (const uint8_t cut : states_.cuts(first)) {
      std::optional<State> to = without(first, last);
      for (int64_t m = first; to && m <= last; ++m) {
        const auto& known = states_.cuts(m);
        const bool has =
            std::find(known.begin(), known.end(), cut) != known.end();
        to = has ? states_.cut(*to, m, cut) : std::nullopt;
      }
      if (to) {
        add(StepKind::kReduceScatter, first, last, *to);
      }
    }
    if (const auto to = with_target_cuts(without(first, last), first, last)) {
      if (moves_.empty() || moves_.back().to != *to) {
        add(StepKind::kReduceScatter, first, last, *to);
      }
    }
  }

  // Appends the target's cuts of first .. last, by turn; nothing where one of
  // them is no cut there or does not fit.
  std::optional<State> with_target_cuts(
      State s, int64_t first, int64_t last) const {
    const State target = states_.target();
    std::vector<int64_t> dims;
    for (int64_t m = first; m <= last; ++m) {
      if (!states_.placement(target, m).is_shard()) {
        return std::nullopt;
      }
      dims.push_back(m);
    }
    std::stable_sort(dims.begin(), dims.end(), [&](int64_t a, int64_t b) {
      return states_.turn(target, a) < states_.turn(target, b);
    });
    std::optional<State> to = s;
    for (const int64_t m : dims) {
      to = to ? states_.cut(*to, m, states_.index(target, m)) : to;
    }
    return to;
  }

  // All cuts at once, where nothing else is left to do: one copy, no
  // intermediate result.
  void remaining_cuts() {
    const State target = states_.target();
    std::vector<int64_t> missing;
    for (int64_t m = 0; m < states_.mesh_dims(); ++m) {
      if (states_.placement(s_, m) == states_.placement(target, m) &&
          states_.turn(s_, m) == states_.turn(target, m)) {
        continue;
      }
      if (!states_.placement(s_, m).is_replicate() ||
          !states_.placement(target, m).is_shard()) {
        return;
      }
      missing.push_back(m);
    }
    if (missing.size() > 1) {
      add(StepKind::kCut, missing.front(), missing.back(), target);
    }
  }

  const States& states_;
  State s_;
  std::vector<Move> moves_;
};

}  // namespace

std::vector<Move> moves_from(const States& states, State s) {
  return Moves(states, s).all();
}

std::optional<State> exchange_from(const States& states, State s) {
  State to = states.target();
  for (int64_t m = 0; m < states.mesh_dims(); ++m) {
    const Placement& have = states.placement(s, m);
    const Placement& want = states.placement(states.target(), m);
    if (have.is_partial() && have != want) {
      return std::nullopt;
    }
    if (want.is_partial() && have != want) {
      to = states.replicated(to, m);
    }
  }
  if (to == s) {
    return std::nullopt;
  }
  return to;
}

}  // namespace tessera::detail
