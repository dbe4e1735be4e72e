#include "plan/search/transitions.h"

#include <algorithm>

namespace tessera::detail::inline plan_layer {
namespace {

class Transitions {
 public:
  Transitions(
      const States& states, State s, std::vector<Transition>& transitions)
      : states_(states), s_(s), transitions_(transitions) {}

  void all() {
    const int64_t n = states_.mesh_dims();
    for (int64_t m = 0; m < n; ++m) {
      one_dim(m);
    }
    for (int64_t first = 0; first < n; ++first) {
      for (int64_t last = first + 1; last < n; ++last) {
        gather(first, last);
        if (same_partial(first, last)) {
          add(StepKind::kAllReduce, without(first, last));
          scatter(first, last);
        }
      }
    }
    if (states_.is_wide()) {
      append_cuts(StepKind::kSlice, s_, replicated_dims(), 0, Append::kSome);
    } else {
      remaining_cuts();
    }
    to_partial();
  }

 private:
  void add(StepKind kind, State to) {
    if (to != s_) {
      transitions_.push_back({kind, to});
    }
  }

  void one_dim(int64_t m) {
    if (states_.is_shard(s_, m)) {
      if (!states_.is_innermost(s_, m)) {
        return;
      }
      const State bare = states_.replicated(s_, m);
      add(StepKind::kAllGather, bare);
      append_cut(StepKind::kAllToAll, bare, m);
    } else if (states_.is_partial(s_, m)) {
      const State bare = states_.replicated(s_, m);
      add(StepKind::kAllReduce, bare);
      append_cut(StepKind::kReduceScatter, bare, m);
    } else if (!states_.is_wide()) {
      append_cut(StepKind::kSlice, s_, m);
    }
  }

  void append_cut(StepKind kind, State bare, int64_t m) {
    for (const uint8_t cut : states_.cuts(m)) {
      if (const auto to = states_.cut(bare, m, cut)) {
        add(kind, *to);
      }
    }
  }

  // Undoes the cuts of first .. last, innermost first, where nothing else cuts
  // after them.
  void gather(int64_t first, int64_t last) {
    for (int64_t m = first; m <= last; ++m) {
      if (!states_.is_shard(s_, m)) {
        return;
      }
    }
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
      if (!states_.is_replicate(to, m)) {
        return;
      }
    }
    add(StepKind::kAllGather, to);
  }

  bool same_partial(int64_t first, int64_t last) const {
    for (int64_t m = first; m <= last; ++m) {
      if (!states_.is_partial(s_, m) ||
          states_.index(s_, m) != states_.index(s_, first)) {
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

  // Sets of mesh dims: bit m.
  using Dims = uint32_t;
  enum class Append { kSome, kAll };

  Dims replicated_dims() const {
    Dims dims = 0;
    for (int64_t m = 0; m < states_.mesh_dims(); ++m) {
      dims |= states_.is_replicate(s_, m) ? Dims{1} << m : 0;
    }
    return dims;
  }

  // Adds a move for every choice of cuts of `dims` (all of them, or any set of
  // them) in every order. Tensor dims ascend from `tensor_dim`, so each result
  // is found once.
  void append_cuts(
      StepKind kind, State s, Dims dims, int64_t tensor_dim, Append append) {
    for (int64_t m = 0; m < states_.mesh_dims(); ++m) {
      const Dims rest = dims & ~(Dims{1} << m);
      if (rest == dims) {
        continue;
      }
      for (const uint8_t cut : states_.cuts(m)) {
        const int64_t d = states_.tensor_dim(cut);
        const auto to = d < tensor_dim ? std::nullopt : states_.cut(s, m, cut);
        if (to && (append == Append::kSome || rest == 0)) {
          add(kind, *to);
        }
        if (to && rest != 0) {
          append_cuts(kind, *to, rest, d, append);
        }
      }
    }
  }

  // Into every choice of cuts; in a narrow search into cuts of one kind in mesh
  // order and into the target's.
  void scatter(int64_t first, int64_t last) {
    const State bare = without(first, last);
    if (states_.is_wide()) {
      const Dims dims = (Dims{2} << last) - (Dims{1} << first);
      append_cuts(StepKind::kReduceScatter, bare, dims, 0, Append::kAll);
      return;
    }
    for (const uint8_t cut : states_.cuts(first)) {
      std::optional<State> to = bare;
      for (int64_t m = first; to && m <= last; ++m) {
        const auto& known = states_.cuts(m);
        const bool has =
            std::find(known.begin(), known.end(), cut) != known.end();
        to = has ? states_.cut(*to, m, cut) : std::nullopt;
      }
      if (to) {
        add(StepKind::kReduceScatter, *to);
      }
    }
    if (const auto to = with_target_cuts(bare, first, last)) {
      if (transitions_.empty() || transitions_.back().to != *to) {
        add(StepKind::kReduceScatter, *to);
      }
    }
  }

  // Appends the target's cuts of first .. last, by order; nothing where one of
  // them is no cut there or does not fit.
  std::optional<State> with_target_cuts(
      State s, int64_t first, int64_t last) const {
    const State target = states_.target();
    std::vector<int64_t> dims;
    for (int64_t m = first; m <= last; ++m) {
      if (!states_.is_shard(target, m)) {
        return std::nullopt;
      }
      dims.push_back(m);
    }
    std::stable_sort(dims.begin(), dims.end(), [&](int64_t a, int64_t b) {
      return states_.order(target, a) < states_.order(target, b);
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
    int64_t missing = 0;
    for (int64_t m = 0; m < states_.mesh_dims(); ++m) {
      if (states_.index(s_, m) == states_.index(target, m) &&
          states_.order(s_, m) == states_.order(target, m)) {
        continue;
      }
      if (!states_.is_replicate(s_, m) || !states_.is_shard(target, m)) {
        return;
      }
      ++missing;
    }
    if (missing > 1) {
      add(StepKind::kSlice, target);
    }
  }

  // All partials of the target that can be made, at once: partials in the place
  // of R hinder no other step, and fewer of them cost as much.
  void to_partial() {
    State to = s_;
    for (int64_t m = 0; m < states_.mesh_dims(); ++m) {
      if (states_.is_replicate(s_, m)) {
        to = states_.partial(to, m).value_or(to);
      }
    }
    add(StepKind::kToPartial, to);
  }

  const States& states_;
  State s_;
  std::vector<Transition>& transitions_;
};

}  // namespace

void transitions_from(
    const States& states, State s, std::vector<Transition>& transitions) {
  transitions.clear();
  Transitions(states, s, transitions).all();
}

std::optional<State> exchange_from(const States& states, State s) {
  State to = states.target();
  for (int64_t m = 0; m < states.mesh_dims(); ++m) {
    const bool same = states.index(s, m) == states.index(to, m);
    if (states.is_partial(s, m) && !same) {
      return std::nullopt;
    }
    if (states.is_partial(to, m) && !same) {
      to = states.replicated(to, m);
    }
  }
  if (to == s) {
    return std::nullopt;
  }
  return to;
}

}  // namespace tessera::detail::inline plan_layer
