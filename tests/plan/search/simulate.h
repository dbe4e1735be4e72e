// Runs a plan on explicit lists of elements, one per rank, and compares the end
// with the definition of the target. Knows nothing of the planner's arithmetic:
// who holds what comes from layout/reference.h.
//
// An element is its global index and the set of source addends in its value.
// Without partials there is one addend. Reducing joins sets that must not meet:
// an addend that is counted twice, or lost, is found.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <tessera/plan/exchange.h>
#include <tessera/plan/redistribute_plan.h>

#include "layout/reference.h"

namespace tessera::simulation {

using reference::List;
using Addends = std::set<int64_t>;
/// What a rank stores: global indices (row-major in its shard) with addends.
using Stored = std::vector<std::pair<List, Addends>>;
using World = std::map<int64_t, Stored>;  // by rank

/// Returns the global indices of the shard at a coordinate, in storage order.
inline std::vector<List> indices(const Layout& layout, const List& at) {
  std::vector<List> result{{}};
  for (size_t d = 0; d < layout.shape().size(); ++d) {
    const List held = reference::held(
        layout.shape()[d], static_cast<int64_t>(d), layout.mesh().sizes(),
        layout.placements(), at);
    std::vector<List> longer;
    for (const List& front : result) {
      for (const int64_t i : held) {
        longer.push_back(front);
        longer.back().push_back(i);
      }
    }
    result = std::move(longer);
  }
  return result;
}

/// Returns the number that the partial coordinates of a layout spell.
inline int64_t addend_number(const Layout& layout, const List& at) {
  int64_t number = 0;
  for (size_t m = 0; m < at.size(); ++m) {
    if (layout.placements()[m].is_partial()) {
      number = number * layout.mesh().sizes()[m] + at[m];
    }
  }
  return number;
}

inline World start(const Layout& layout) {
  World world;
  for (const List& at : reference::coordinates(layout.mesh().sizes())) {
    Stored& stored = world[layout.mesh().rank_at(at)];
    for (const List& index : indices(layout, at)) {
      stored.push_back({index, {addend_number(layout, at)}});
    }
  }
  return world;
}

class Simulator {
 public:
  explicit Simulator(const RedistributePlan& plan)
      : plan_(plan), world_(start(plan.source)) {}

  /// Returns "" or what went wrong.
  std::string run() {
    const Layout* current = &plan_.source;
    for (const Step& step : plan_.steps) {
      if (!(step.before.placements() == current->placements())) {
        fail(step, "starts from another layout than the last step's");
      }
      apply(step);
      if (!failure_.empty()) {
        return failure_;
      }
      current = &step.after;
    }
    if (!(current->placements() == plan_.target.placements())) {
      return "ends at another layout";
    }
    check_end();
    return failure_;
  }

 private:
  void fail(const Step& step, const std::string& what) {
    if (failure_.empty()) {
      failure_ = to_string(step) + ": " + what;
    }
  }

  void apply(const Step& step) {
    if (step.kind == StepKind::kExchange) {
      exchange(step);
      return;
    }
    check_placements(step);
    World next;
    const auto all = reference::coordinates(step.after.mesh().sizes());
    for (const List& at : all) {
      std::vector<List> group;  // those that differ in the step's mesh dims
      for (const List& other : all) {
        if (same_but(step.mesh_dims, at, other)) {
          group.push_back(other);
        }
      }
      if (step.is_local()) {
        group = {at};
      }
      next[step.after.mesh().rank_at(at)] = receive(step, at, group);
    }
    world_ = std::move(next);
  }

  static bool same_but(
      const std::vector<int64_t>& dims, const List& a, const List& b) {
    for (size_t m = 0; m < a.size(); ++m) {
      bool free = false;
      for (const int64_t dim : dims) {
        free = free || dim == static_cast<int64_t>(m);
      }
      if (!free && a[m] != b[m]) {
        return false;
      }
    }
    return true;
  }

  Stored receive(
      const Step& step, const List& at, const std::vector<List>& group) {
    const bool reduces = step.kind == StepKind::kAllReduce ||
                         step.kind == StepKind::kReduceScatter;
    std::map<List, Addends> found;
    std::map<List, size_t> copies;
    for (const List& member : group) {
      for (const auto& [index, addends] :
           world_[step.before.mesh().rank_at(member)]) {
        ++copies[index];
        for (const int64_t addend : addends) {
          if (!found[index].insert(addend).second && reduces) {
            fail(step, "an addend is counted twice");
          }
        }
      }
    }
    Stored stored;
    for (const List& index : indices(step.after, at)) {
      if (copies[index] != (reduces ? group.size() : 1)) {
        fail(step, "an element has a wrong number of copies in its group");
      }
      stored.push_back({index, found[index]});
      for (const int64_t m : step.mesh_dims) {
        if (step.kind == StepKind::kToPartial &&
            at[static_cast<size_t>(m)] != 0) {
          stored.back().second.clear();
        }
      }
    }
    return stored;
  }

  // What each kind turns into what.
  void check_placements(const Step& step) {
    const auto from = step.from();
    const auto to = step.to();
    for (size_t i = 0; i < from.size(); ++i) {
      const bool cuts = from[i].is_shard();
      const bool partial = from[i].is_partial();
      bool right = false;
      switch (step.kind) {
        case StepKind::kAllGather:
          right = cuts && to[i].is_replicate();
          break;
        case StepKind::kAllReduce:
          right = partial && to[i].is_replicate();
          break;
        case StepKind::kReduceScatter:
          right = partial && to[i].is_shard();
          break;
        case StepKind::kAllToAll:
          right = cuts && to[i].is_shard() && from.size() == 1;
          break;
        case StepKind::kSlice:
          right = from[i].is_replicate() && to[i].is_shard();
          break;
        case StepKind::kToPartial:
          right = from[i].is_replicate() && to[i].is_partial();
          break;
        case StepKind::kExchange:
          break;
      }
      if (!right || (partial && from[i] != from[0])) {
        fail(step, "does not lead from these placements to those");
      }
    }
  }

  void exchange(const Step& step) {
    World next;
    for (const int64_t rank : step.after.mesh().ranks()) {
      std::map<List, Addends> received;
      for (const Transfer& move :
           exchange_transfers(step.before, step.after, rank)) {
        if (move.to != rank) {
          continue;
        }
        for (const auto& [index, addends] : world_[move.from]) {
          if (move.box.contains(index) &&
              !received.emplace(index, addends).second) {
            fail(step, "an element arrives twice");
          }
        }
      }
      Stored& stored = next[rank];
      for (const List& index :
           indices(step.after, *step.after.mesh().coordinate_of(rank))) {
        if (received.count(index) == 0) {
          fail(step, "an element does not arrive");
        }
        stored.push_back({index, received[index]});
      }
    }
    world_ = std::move(next);
  }

  // Each shard has the target's elements, and the ranks that differ in partial
  // mesh dims only hold every addend once.
  void check_end() {
    const Layout& target = plan_.target;
    int64_t addends = 1;
    for (size_t m = 0; m < plan_.source.placements().size(); ++m) {
      if (plan_.source.placements()[m].is_partial()) {
        addends *= plan_.source.mesh().sizes()[m];
      }
    }
    std::map<std::pair<List, List>, Addends> seen;
    for (const List& at : reference::coordinates(target.mesh().sizes())) {
      const Stored& stored = world_[target.mesh().rank_at(at)];
      const auto wanted = indices(target, at);
      if (stored.size() != wanted.size()) {
        failure_ = "a shard ends with a wrong number of elements";
        return;
      }
      List others = at;
      for (size_t m = 0; m < at.size(); ++m) {
        others[m] = target.placements()[m].is_partial() ? -1 : at[m];
      }
      for (size_t i = 0; i < wanted.size(); ++i) {
        if (stored[i].first != wanted[i]) {
          failure_ = "a shard ends with a wrong element";
          return;
        }
        for (const int64_t addend : stored[i].second) {
          if (!seen[{others, wanted[i]}].insert(addend).second) {
            failure_ = "the end holds an addend twice";
          }
        }
        seen[{others, wanted[i]}];
      }
    }
    for (const auto& [where, set] : seen) {
      if (static_cast<int64_t>(set.size()) != addends) {
        failure_ = "an addend is lost";
      }
    }
  }

  const RedistributePlan& plan_;
  World world_;
  std::string failure_;
};

}  // namespace tessera::simulation
