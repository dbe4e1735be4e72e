#include "plan/search/search.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <queue>
#include <tuple>
#include <unordered_map>

#include <c10/util/Exception.h>
#include <tessera/plan/exchange.h>

#include "plan/search/states.h"
#include "plan/search/transitions.h"

namespace tessera::detail::inline plan_layer {
namespace {

// Meshes up to this size consider an exchange after every move; others only
// from the source, once its partials are reduced.
constexpr int64_t kExchangeEverywhere = 16;
// Beyond this many pairs of ranks an exchange is priced as if nothing stayed.
constexpr int64_t kCountedPairs = int64_t{1} << 18;

struct Price {
  double cost = 0;
  int64_t steps = 0;
  int64_t bytes = 0;
  friend auto operator<=>(const Price&, const Price&) = default;
};

struct Node {
  Price price;
  int64_t numel = -1;
  State parent = 0;
  StepKind kind = StepKind::kSlice;
  int64_t step_bytes = 0;
  double step_cost = 0;
  bool reached = false;
  bool done = false;
};

int64_t exchange_volume(
    const Layout& source, const Layout& target, int64_t before, int64_t after) {
  if (source.mesh().size() > kCountedPairs / target.mesh().size()) {
    return std::max(before, after);
  }
  return exchange_elements(source, target);
}

class Search {
 public:
  // `limit`: how many elements a rank may hold.
  Search(
      const Layout& source, const Layout& target, const Pricing& pricing,
      int64_t limit)
      : states_(source, target),
        pricing_(pricing),
        limit_(limit),
        mesh_(target.mesh()),
        sizes_(mesh_.sizes()),
        ranks_(mesh_.size()),
        source_numel_(states_.numel(states_.source())),
        target_numel_(states_.numel(states_.target())),
        target_(nodes_[states_.target()]) {
    target_.numel = target_numel_;
  }

  // Returns nothing where no plan keeps to the limit.
  std::optional<std::vector<Step>> run() {
    Node& start = nodes_[states_.source()];
    start.numel = source_numel_;
    start.reached = true;
    push(start.price, states_.source());
    while (!queue_.empty()) {
      const State s = std::get<2>(queue_.top());
      queue_.pop();
      Node& node = nodes_[s];
      if (node.done) {
        continue;
      }
      node.done = true;
      if (s == states_.target()) {
        break;
      }
      expand(s, node);
    }
    return target_.reached ? std::optional(steps()) : std::nullopt;
  }

 private:
  using Entry = std::tuple<Price, int64_t, State>;

  void push(const Price& price, State s) {
    queue_.emplace(price, entries_++, s);
  }

  void expand(State s, const Node& from) {
    transitions_from(states_, s, transitions_);
    for (const Transition& move : transitions_) {
      Node& to = node_of(move.to);
      if (to.done) {
        continue;
      }
      changed_dims(s, move.to, dims_);
      int64_t ranks = 1;
      for (const int64_t m : dims_) {
        ranks *= sizes_[static_cast<size_t>(m)];
      }
      const int64_t bytes =
          pricing_.element_size *
          elements_sent(move.kind, ranks, from.numel, to.numel);
      const double cost = step_cost(
          pricing_.model, pricing_.model.over(dims_),
          message_count(move.kind, ranks), bytes,
          pricing_.element_size * to.numel);
      relax(s, from, move.to, to, {move.kind, bytes, cost});
    }
    // Last: of equal prices the plain collective stays.
    if (may_exchange(s)) {
      if (const auto to = exchange_from(states_, s)) {
        exchange(s, from, *to);
      }
    }
  }

  bool may_exchange(State s) const {
    if (states_.is_wide() && ranks_ <= kExchangeEverywhere) {
      return true;
    }
    bool replicated = true;
    bool cut = true;
    for (int64_t m = 0; m < states_.mesh_dims(); ++m) {
      const State mask = State{255} << (8 * m);
      if ((s & mask) == (states_.source() & mask)) {
        continue;
      }
      const bool reduced = states_.is_partial(states_.source(), m);
      replicated = replicated && reduced && states_.is_replicate(s, m);
      cut = cut && reduced && states_.is_shard(s, m);
    }
    return replicated || cut;
  }

  struct Edge {
    StepKind kind;
    int64_t bytes;
    double cost;
  };

  void exchange(State s, const Node& from, State to) {
    dims_.clear();
    for (int64_t m = 0; m < states_.mesh_dims(); ++m) {
      dims_.push_back(m);
    }
    Node& node = node_of(to);
    const Link link = pricing_.model.over(dims_);
    const int64_t messages = message_count(StepKind::kExchange, ranks_);
    const int64_t written = pricing_.element_size * node.numel;
    // Some rank of the largest target shard receives at least the difference.
    const int64_t least =
        pricing_.element_size * std::max<int64_t>(node.numel - from.numel, 0);
    const double bound =
        from.price.cost +
        step_cost(pricing_.model, link, messages, least, written);
    if (node.done || (node.reached && bound > node.price.cost) ||
        (target_.reached && bound > target_.price.cost)) {
      return;
    }
    const int64_t bytes =
        pricing_.element_size *
        exchange_volume(
            states_.layout(s), states_.layout(to), from.numel, node.numel);
    const double cost =
        step_cost(pricing_.model, link, messages, bytes, written);
    relax(s, from, to, node, {StepKind::kExchange, bytes, cost});
  }

  // The caller keeps the source; what a step reads and writes beside it may not
  // exceed the target and the largest message, nor the limit.
  bool fits(State s, StepKind kind, int64_t before, int64_t after) const {
    const bool is_in_place = s == states_.source() ||
                             kind == StepKind::kAllReduce ||
                             kind == StepKind::kToPartial;
    if (limit_ - source_numel_ - (is_in_place ? 0 : before) < after) {
      return false;
    }
    return is_in_place ||
           before + after <=
               target_numel_ + std::max({source_numel_, before, after});
  }

  void relax(
      State s, const Node& from, State to, Node& node, const Edge& edge) {
    if (!fits(s, edge.kind, from.numel, node.numel)) {
      return;
    }
    const Price next{
        from.price.cost + edge.cost, from.price.steps + 1,
        from.price.bytes + edge.bytes};
    if (target_.reached && next > target_.price) {
      return;
    }
    if (node.done || (node.reached && node.price <= next)) {
      return;
    }
    node.price = next;
    node.reached = true;
    node.parent = s;
    node.kind = edge.kind;
    node.step_bytes = edge.bytes;
    node.step_cost = edge.cost;
    push(next, to);
  }

  Node& node_of(State s) {
    Node& node = nodes_[s];
    if (node.numel < 0) {
      node.numel = states_.numel(s);
    }
    return node;
  }

  static void changed_dims(State a, State b, std::vector<int64_t>& dims) {
    dims.clear();
    for (int64_t m = 0; m < kMaxMeshDims; ++m) {
      if (((a ^ b) >> (8 * m) & 255) != 0) {
        dims.push_back(m);
      }
    }
  }

  std::vector<Step> steps() {
    std::vector<Step> result;
    for (State s = states_.target(); s != states_.source();) {
      const Node& node = nodes_[s];
      std::vector<int64_t> dims;
      changed_dims(node.parent, s, dims);
      if (node.kind == StepKind::kExchange) {
        dims.clear();
        for (int64_t m = 0; m < states_.mesh_dims(); ++m) {
          dims.push_back(m);
        }
      }
      result.push_back(
          {node.kind, std::move(dims), states_.layout(node.parent),
           states_.layout(s), node.step_bytes, node.step_cost});
      s = node.parent;
    }
    std::reverse(result.begin(), result.end());
    return result;
  }

  States states_;
  const Pricing& pricing_;
  int64_t limit_;
  const MeshShape& mesh_;
  std::vector<int64_t> sizes_;
  int64_t ranks_;
  int64_t source_numel_;
  int64_t target_numel_;
  std::unordered_map<State, Node> nodes_;  // references to nodes stay valid
  Node& target_;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<Entry>> queue_;
  int64_t entries_ = 0;
  std::vector<Transition> transitions_;  // of the state at hand
  std::vector<int64_t> dims_;            // of the move at hand
};

std::vector<int64_t> all_dims(const Layout& layout) {
  std::vector<int64_t> dims;
  for (int64_t m = 0; m < layout.mesh().ndim(); ++m) {
    dims.push_back(m);
  }
  return dims;
}

// The largest number of indices of one tensor dim: the lengths that occur, cut
// by cut.
int64_t largest_length(const Layout& layout, int64_t d) {
  std::vector<int64_t> lengths{layout.shape()[static_cast<size_t>(d)]};
  for (const int64_t m : layout.cuts(d)) {
    std::vector<int64_t> shorter;
    const Placement& p = layout.placements()[static_cast<size_t>(m)];
    const int64_t parts = layout.mesh().size(m);
    for (const int64_t length : lengths) {
      for (int64_t r = 0; r < parts; ++r) {
        shorter.push_back(total_length(cut_runs(p, length, parts, r)));
      }
    }
    std::sort(shorter.begin(), shorter.end());
    shorter.erase(std::unique(shorter.begin(), shorter.end()), shorter.end());
    lengths = std::move(shorter);
  }
  return lengths.back();
}

}  // namespace

int64_t largest_shard(const Layout& layout) {
  int64_t product = 1;
  for (size_t d = 0; d < layout.shape().size(); ++d) {
    product *= largest_length(layout, static_cast<int64_t>(d));
  }
  return product;
}

std::vector<Step> search_steps(
    const Layout& source, const Layout& target, const Pricing& pricing) {
  constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
  const int64_t limit = pricing.model.memory_limit;
  auto steps = Search(
                   source, target, pricing,
                   limit == kNoLimit ? limit : limit / pricing.element_size)
                   .run();
  if (!steps && limit != kNoLimit) {
    steps = Search(source, target, pricing, kNoLimit).run();
  }
  // Reducing, exchanging and to_partial lead from any source to any target.
  TORCH_INTERNAL_ASSERT(steps);
  return *std::move(steps);
}

Step exchange_step(
    const Layout& source, const Layout& target, const Pricing& pricing) {
  const int64_t before = largest_shard(source);
  const int64_t after = largest_shard(target);
  const auto dims = std::max(
      all_dims(source), all_dims(target),
      [](const auto& a, const auto& b) { return a.size() < b.size(); });
  const int64_t ranks = std::max(source.mesh().size(), target.mesh().size());
  const int64_t bytes =
      pricing.element_size * exchange_volume(source, target, before, after);
  const double cost = step_cost(
      pricing.model, pricing.model.over(dims),
      message_count(StepKind::kExchange, ranks), bytes,
      pricing.element_size * after);
  return {StepKind::kExchange, all_dims(target), source, target, bytes, cost};
}

Step collective_step(
    StepKind kind, std::vector<int64_t> mesh_dims, const Layout& before,
    const Layout& after, const Pricing& pricing) {
  int64_t ranks = 1;
  for (const int64_t m : mesh_dims) {
    ranks *= after.mesh().size(m);
  }
  const int64_t written = largest_shard(after);
  const int64_t bytes =
      pricing.element_size *
      elements_sent(kind, ranks, largest_shard(before), written);
  const double cost = step_cost(
      pricing.model, pricing.model.over(mesh_dims), message_count(kind, ranks),
      bytes, pricing.element_size * written);
  return {kind, std::move(mesh_dims), before, after, bytes, cost};
}

}  // namespace tessera::detail::inline plan_layer
