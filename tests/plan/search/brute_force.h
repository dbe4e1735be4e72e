// The cheapest redistribution by uniform-cost search over all steps of a world
// and the exchange, with prices and a memory rule of its own.
#pragma once

#include <limits>
#include <queue>

#include "plan/search/brute_force_world.h"

namespace tessera::brute_force {

/// Seconds per message and bytes per second of each mesh dim, bytes per second
/// of a copy, bytes of an element.
struct Machine {
  std::vector<double> latency;
  std::vector<double> bandwidth;
  double copy;
  double element;
};

struct Price {
  double cost;
  int64_t elements;
};

class Search {
 public:
  Search(World& world, Machine machine)
      : world_(world), machine_(std::move(machine)) {
    for (size_t a = 0; a < world_.states().size(); ++a) {
      costs_.emplace_back();
      for (const Edge& edge : world_.edges(a)) {
        costs_.back().push_back(price(a, edge).cost);
      }
    }
    for (size_t m = 0; m < world_.mesh().size(); ++m) {
      all_dims_.push_back(m);
    }
  }

  /// Returns the price of a step that is no exchange.
  Price price(size_t a, const Edge& edge) const {
    int64_t n = 1;
    for (const size_t m : edge.dims) {
      n *= world_.mesh()[m];
    }
    const int64_t larger = std::max(world_.size(a), world_.size(edge.to));
    const bool local =
        edge.kind == Edge::kSlice || edge.kind == Edge::kToPartial;
    const int64_t times = local ? 0 : edge.kind == Edge::kReduce ? 2 : 1;
    return sum(
        edge.dims, times * rounds(n), times * (larger - larger / n),
        world_.size(edge.to));
  }

  Price exchange_price(size_t a, size_t b) const {
    return sum(
        all_dims_, rounds(world_.ranks()), world_.exchanged(a, b),
        world_.size(b));
  }

  /// Returns the cost of the cheapest plan that keeps to the memory rule.
  double cheapest(size_t source, size_t target) {
    constexpr double kNever = std::numeric_limits<double>::infinity();
    std::vector<double> best(world_.states().size(), kNever);
    using Entry = std::pair<double, size_t>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open;
    const auto reach = [&](size_t a, size_t b, bool in_place, double cost) {
      if (cost < best[b] && is_searched(source, target, b) &&
          fits(source, target, a, b, in_place)) {
        best[b] = cost;
        open.emplace(cost, b);
      }
    };
    best[source] = 0;
    open.emplace(0, source);
    while (!open.empty()) {
      const auto [cost, a] = open.top();
      open.pop();
      if (a == target) {
        return cost;
      }
      if (cost > best[a]) {
        continue;
      }
      for (size_t i = 0; i < costs_[a].size(); ++i) {
        const Edge& edge = world_.edges(a)[i];
        const bool in_place =
            edge.kind == Edge::kReduce || edge.kind == Edge::kToPartial;
        reach(a, edge.to, in_place, cost + costs_[a][i]);
      }
      const auto b = arrival(a, target);
      if (b && *b != a) {
        reach(a, *b, false, cost + exchange_price(a, *b).cost);
      }
    }
    return kNever;
  }

  /// Returns where an exchange from `a` leads: the target, R where its addends
  /// are not there yet; nothing where `a` has an addend to reduce.
  std::optional<size_t> arrival(size_t a, size_t target) const {
    const State& have = world_.states()[a];
    State to = world_.states()[target];
    for (const size_t m : all_dims_) {
      const bool same = have.piece[m] == to.piece[m];
      if (world_.piece(have, m).kind == 'P' && !same) {
        return std::nullopt;
      }
      if (world_.piece(to, m).kind == 'P' && !same) {
        to.piece[m] = 0;
      }
    }
    return world_.find(to);
  }

 private:
  // After each round twice as many ranks have heard of a value.
  static int64_t rounds(int64_t ranks) {
    int64_t count = 0;
    for (int64_t heard = 1; heard < ranks; heard *= 2) {
      ++count;
    }
    return count;
  }

  Price sum(
      const std::vector<size_t>& dims, int64_t messages, int64_t elements,
      int64_t written) const {
    double latency = 0;
    double bandwidth = std::numeric_limits<double>::infinity();
    for (const size_t m : dims) {
      latency = std::max(latency, machine_.latency[m]);
      bandwidth = std::min(bandwidth, machine_.bandwidth[m]);
    }
    const auto bytes = [&](int64_t count) {
      return machine_.element * static_cast<double>(count);
    };
    return {
        static_cast<double>(messages) * latency + bytes(elements) / bandwidth +
            bytes(written) / machine_.copy,
        elements};
  }

  // Addends, strided and ragged cuts are those of source and target, on the
  // mesh dims where they have them.
  bool is_searched(size_t source, size_t target, size_t b) const {
    const auto& states = world_.states();
    for (const size_t m : all_dims_) {
      const Piece& p = world_.piece(states[b], m);
      const bool anywhere = p.kind == 'R' || (p.kind == 'S' && p.factor == 1);
      if (!anywhere && states[b].piece[m] != states[source].piece[m] &&
          states[b].piece[m] != states[target].piece[m]) {
        return false;
      }
    }
    return true;
  }

  // The source stays. A step from it may write anything; a later one holds its
  // input, unless it works in place, and its output beside it: no more than the
  // target and the largest of source, input and output.
  bool fits(
      size_t source, size_t target, size_t a, size_t b, bool in_place) const {
    const int64_t before = world_.size(a);
    const int64_t after = world_.size(b);
    const int64_t held = in_place ? after : before + after;
    return a == source ||
           held <= world_.size(target) +
                       std::max({world_.size(source), before, after});
  }

  World& world_;
  Machine machine_;
  std::vector<size_t> all_dims_;
  std::vector<std::vector<double>> costs_;  // per state and edge
};

}  // namespace tessera::brute_force
