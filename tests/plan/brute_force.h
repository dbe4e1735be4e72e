// The cheapest redistribution by uniform-cost search over everything a step may
// do, written from the words of docs/02_plan.md. Shares Layout with the planner
// and nothing of its states, moves, prices or pruning.
#pragma once

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <tessera/plan/cost.h>

#include "plan/simulate.h"

namespace tessera::brute_force {

using reference::List;

/// Returns the elements of the largest shard, by listing all of them.
inline int64_t largest(const Layout& layout) {
  size_t most = 0;
  for (const List& at : reference::coordinates(layout.mesh().sizes())) {
    most = std::max(most, simulation::indices(layout, at).size());
  }
  return static_cast<int64_t>(most);
}

/// Returns what the busiest rank of an exchange on one mesh sends or receives,
/// element by element: the sender agrees with the receiver in every mesh dim
/// that does not cut the source.
inline int64_t exchanged(const Layout& a, const Layout& b) {
  std::map<List, int64_t> sent;
  int64_t most = 0;
  for (const List& at : reference::coordinates(b.mesh().sizes())) {
    int64_t received = 0;
    for (const List& index : simulation::indices(b, at)) {
      List from = a.owner(index);
      for (size_t m = 0; m < from.size(); ++m) {
        from[m] = from[m] < 0 ? at[m] : from[m];
      }
      if (from != at) {
        ++received;
        most = std::max({most, received, ++sent[from]});
      }
    }
  }
  return most;
}

class Search {
 public:
  Search(
      const Layout& source, const Layout& target, const MachineModel& model,
      int64_t element_size)
      : source_(source),
        target_(target),
        model_(model),
        element_size_(static_cast<double>(element_size)) {}

  double cheapest() {
    reach(source_, 0);
    while (!open_.empty()) {
      const auto [cost, key] = *open_.begin();
      open_.erase(open_.begin());
      const Layout layout = known_.at(key).layout;
      if (layout == target_) {
        return cost;
      }
      expand(layout, cost);
    }
    return std::numeric_limits<double>::infinity();
  }

 private:
  struct Known {
    Layout layout;
    double cost;
  };

  void reach(const Layout& layout, double cost) {
    const std::string key = to_string(layout);
    const auto [at, is_new] = known_.try_emplace(key, Known{layout, cost});
    if (!is_new) {
      if (at->second.cost <= cost) {
        return;
      }
      open_.erase({at->second.cost, key});
      at->second.cost = cost;
    }
    open_.insert({cost, key});
  }

  int64_t size_of(const Layout& layout) {
    const auto [at, is_new] = sizes_.try_emplace(to_string(layout), 0);
    if (is_new) {
      at->second = largest(layout);
    }
    return at->second;
  }

  void step(
      const Layout& a, const Layout& b, double cost,
      const std::vector<size_t>& dims, double messages, int64_t elements,
      bool in_place) {
    const int64_t before = size_of(a);
    const int64_t after = size_of(b);
    const int64_t limit =
        size_of(target_) + std::max({size_of(source_), before, after});
    const int64_t held = in_place ? after : before + after;
    if (a == b || (!(a == source_) && held > limit)) {
      return;
    }
    double latency = 0;
    double bandwidth = std::numeric_limits<double>::infinity();
    for (const size_t m : dims) {
      const Link& link =
          m < model_.links.size() ? model_.links[m] : model_.link;
      latency = std::max(latency, link.latency);
      bandwidth = std::min(bandwidth, link.bandwidth);
    }
    reach(
        b,
        cost + messages * latency +
            element_size_ * static_cast<double>(elements) / bandwidth +
            element_size_ * static_cast<double>(after) / model_.copy_bandwidth);
  }

  // Prices a change of `dims` by what they were and what they become.
  void change(
      const Layout& a, const Placements& to, double cost,
      const std::vector<size_t>& dims) {
    std::vector<Layout> result;
    try {
      result.emplace_back(a.shape(), a.mesh(), to);
    } catch (const c10::Error&) {
      return;  // lengths that do not fit, partial kinds that do not mix
    }
    int64_t n = 1;
    for (const size_t m : dims) {
      n *= a.mesh().sizes()[m];
    }
    const Placement& from = a.placements()[dims[0]];
    const int64_t larger = std::max(size_of(a), size_of(result[0]));
    double messages = static_cast<double>(n - 1);
    int64_t elements = larger - larger / n;
    if (from.is_replicate()) {
      messages = 0;
      elements = 0;
    } else if (from.is_partial() && to[dims[0]].is_replicate()) {
      messages *= 2;
      elements *= 2;
    }
    const bool to_cut = to[dims[0]].is_shard();
    step(
        a, result[0], cost, dims, messages, elements,
        !from.is_shard() && !to_cut);
  }

  // The placements of `a` without the cuts of `dims`, every turn spelled out;
  // nothing where one of them is not among the last of its tensor dim.
  static std::vector<Placements> bare(
      const Layout& a, const std::vector<size_t>& dims) {
    Placements result = a.placements();
    for (size_t d = 0; d < a.shape().size(); ++d) {
      int64_t turn = 0;
      bool ended = false;
      for (const int64_t m : a.cuts(static_cast<int64_t>(d))) {
        const auto at = static_cast<size_t>(m);
        if (std::find(dims.begin(), dims.end(), at) != dims.end()) {
          ended = true;
        } else if (ended) {
          return {};
        } else {
          result[at] = result[at].with_order(turn++);
        }
      }
    }
    for (const size_t m : dims) {
      result[m] = Replicate();
    }
    return {result};
  }

  static void append(Placements& placements, size_t m, Placement cut) {
    int64_t turn = 0;
    for (const Placement& p : placements) {
      turn += p.is_shard(cut.dim()) ? 1 : 0;
    }
    placements[m] = cut.with_order(turn);
  }

  Placements cuts_for(size_t m) const {
    Placements cuts;
    for (size_t d = 0; d < source_.shape().size(); ++d) {
      cuts.push_back(Shard(static_cast<int64_t>(d)));
    }
    for (const Layout* layout : {&source_, &target_}) {
      const Placement& p = layout->placements()[m];
      if (p.is_shard()) {
        cuts.push_back(p);
      }
    }
    return cuts;
  }

  void expand(const Layout& a, double cost) {
    const size_t n = a.placements().size();
    for (size_t first = 0; first < n; ++first) {
      std::vector<size_t> dims;
      for (size_t last = first; last < n; ++last) {
        dims.push_back(last);
        together(a, cost, dims);
      }
      alone(a, cost, first);
    }
    rest_of_the_cuts(a, cost);
    exchange(a, cost);
  }

  // all_gather, all_reduce and reduce_scatter over neighbouring mesh dims.
  void together(const Layout& a, double cost, const std::vector<size_t>& dims) {
    bool partial = true;
    for (const size_t m : dims) {
      const Placement& p = a.placements()[m];
      partial = partial && p.is_partial() && p == a.placements()[dims[0]];
      if (p.is_replicate() || (p.is_partial() && !partial)) {
        return;
      }
      if (p.is_shard() && a.placements()[dims[0]].is_partial()) {
        return;
      }
    }
    for (const Placements& base : bare(a, dims)) {
      change(a, base, cost, dims);
      if (partial) {
        scatter(a, base, cost, dims);
      }
    }
  }

  // Every dim the same cut, in mesh order; or all the target's, by turn.
  void scatter(
      const Layout& a, const Placements& base, double cost,
      const std::vector<size_t>& dims) {
    for (const Placement& cut : cuts_for(dims[0])) {
      Placements to = base;
      bool all = true;
      for (const size_t m : dims) {
        const auto known = cuts_for(m);
        all = all &&
              std::any_of(known.begin(), known.end(), [&](const Placement& p) {
                return p.with_order(-1) == cut.with_order(-1);
              });
        append(to, m, cut);
      }
      if (all) {
        change(a, to, cost, dims);
      }
    }
    std::vector<std::pair<int64_t, size_t>> by_turn;
    for (const size_t m : dims) {
      const Placement& p = target_.placements()[m];
      if (!p.is_shard()) {
        return;
      }
      const auto& cuts = target_.cuts(p.dim());
      by_turn.emplace_back(
          std::find(cuts.begin(), cuts.end(), static_cast<int64_t>(m)) -
              cuts.begin(),
          m);
    }
    std::sort(by_turn.begin(), by_turn.end());
    Placements to = base;
    for (const auto& [turn, m] : by_turn) {
      append(to, m, target_.placements()[m]);
    }
    change(a, to, cost, dims);
  }

  // cut, to_partial and all_to_all on one mesh dim.
  void alone(const Layout& a, double cost, size_t m) {
    const Placement& p = a.placements()[m];
    for (const Placements& base : bare(a, {m})) {
      if (!p.is_partial()) {
        for (const Placement& cut : cuts_for(m)) {
          Placements to = base;
          append(to, m, cut);
          change(a, to, cost, {m});
        }
      }
      if (p.is_replicate() && target_.placements()[m].is_partial()) {
        Placements to = base;
        to[m] = target_.placements()[m];
        change(a, to, cost, {m});
      }
    }
  }

  void rest_of_the_cuts(const Layout& a, double cost) {
    std::vector<size_t> dims;
    for (size_t m = 0; m < a.placements().size(); ++m) {
      if (a.placements()[m].is_replicate() &&
          target_.placements()[m].is_shard()) {
        dims.push_back(m);
      }
    }
    if (dims.empty()) {
      return;
    }
    for (const Placements& without : bare(target_, dims)) {
      if (Layout(a.shape(), a.mesh(), without) == a) {
        change(a, target_.placements(), cost, dims);
      }
    }
  }

  void exchange(const Layout& a, double cost) {
    Placements to = target_.placements();
    std::vector<size_t> dims;
    for (size_t m = 0; m < to.size(); ++m) {
      const Placement& p = a.placements()[m];
      if (p.is_partial() && p != to[m]) {
        return;
      }
      to[m] = to[m].is_partial() && p != to[m] ? Replicate() : to[m];
      dims.push_back(m);
    }
    const Layout b(a.shape(), a.mesh(), to);
    step(
        a, b, cost, dims, static_cast<double>(a.mesh().size() - 1),
        exchanged(a, b), false);
  }

  const Layout& source_;
  const Layout& target_;
  const MachineModel& model_;
  double element_size_;
  std::map<std::string, Known> known_;
  std::set<std::pair<double, std::string>> open_;
  std::map<std::string, int64_t> sizes_;
};

}  // namespace tessera::brute_force
