#include <cstdlib>
#include <iostream>

#include <gtest/gtest.h>
#include <tessera/plan/redistribute_plan.h>

#include "plan/cases.h"
#include "plan/search/brute_force.h"

namespace tessera {
namespace {

using brute_force::Edge;
using brute_force::List;
using brute_force::Piece;
using brute_force::State;
using brute_force::World;

constexpr int64_t kElement = 4;

brute_force::Machine machine_of(const MachineModel& model, size_t mesh_dims) {
  brute_force::Machine machine{
      .latency = {},
      .bandwidth = {},
      .copy = model.copy_bandwidth,
      .element = static_cast<double>(kElement)};
  for (size_t m = 0; m < mesh_dims; ++m) {
    const Link& link = m < model.links.size() ? model.links[m] : model.link;
    machine.latency.push_back(link.latency);
    machine.bandwidth.push_back(link.bandwidth);
  }
  return machine;
}

ReduceOp reduce_op(char op) {
  return op == '+'   ? ReduceOp::kSum
         : op == 'a' ? ReduceOp::kAvg
                     : ReduceOp::kMax;
}

Placement placement_of(const Piece& piece, size_t turn) {
  Placement cut;
  switch (piece.kind) {
    case 'R':
      return Replicate();
    case 'P':
      return Partial(reduce_op(piece.op));
    case 'G':
      cut = RaggedShard(piece.dim, piece.sizes);
      break;
    default:
      cut = piece.factor == 1 ? Shard(piece.dim)
                              : StridedShard(piece.dim, piece.factor);
  }
  return cut.with_order(static_cast<int64_t>(turn));
}

Layout layout_of(const World& world, const State& state) {
  Placements placements;
  for (size_t m = 0; m < world.mesh().size(); ++m) {
    placements.push_back(placement_of(world.piece(state, m), state.turn[m]));
  }
  return Layout(world.shape(), MeshShape(world.mesh()), placements);
}

StepKind kind_of(Edge::Kind kind) {
  switch (kind) {
    case Edge::kGather:
      return StepKind::kAllGather;
    case Edge::kReduce:
      return StepKind::kAllReduce;
    case Edge::kScatter:
      return StepKind::kReduceScatter;
    case Edge::kAllToAll:
      return StepKind::kAllToAll;
    case Edge::kSlice:
      return StepKind::kSlice;
    case Edge::kToPartial:
      return StepKind::kToPartial;
  }
  return StepKind::kExchange;
}

// R, P(sum), S of every tensor dim, SS(0,2) and RS(0,[1,0,..,0,size-1]).
std::vector<std::vector<Piece>> all_kinds(const List& shape, const List& mesh) {
  std::vector<std::vector<Piece>> catalogue;
  for (const int64_t n : mesh) {
    std::vector<Piece> pieces{{.kind = 'R'}, {.kind = 'P'}};
    for (size_t d = 0; d < shape.size(); ++d) {
      pieces.push_back({.kind = 'S', .dim = static_cast<int64_t>(d)});
    }
    pieces.push_back({.kind = 'S', .dim = 0, .factor = 2});
    List sizes(static_cast<size_t>(n), 0);
    sizes.front() = std::min<int64_t>(shape[0], 1);
    sizes.back() = shape[0] - sizes.front();
    pieces.push_back({.kind = 'G', .dim = 0, .sizes = sizes});
    catalogue.push_back(pieces);
  }
  return catalogue;
}

class Comparison {
 public:
  explicit Comparison(World world) : world_(std::move(world)) {
    for (const State& state : world_.states()) {
      layouts_.push_back(layout_of(world_, state));
    }
    for (const cases::NamedModel& named : cases::models()) {
      searches_.emplace_back(
          world_, machine_of(named.model, world_.mesh().size()));
    }
  }

  /// Compares every `stride`-th pair of states: with every machine model, or
  /// with one in turn. Returns the number of plans.
  int64_t run(size_t stride, bool every_model) {
    const auto all = cases::models();
    int64_t plans = 0;
    const size_t n = layouts_.size();
    for (size_t pair = 0; pair < n * n; pair += stride) {
      const size_t turn = (pair / stride + pair / n) % all.size();
      for (size_t k = 0; k < all.size(); ++k) {
        if (every_model || k == turn) {
          compare(pair / n, pair % n, all[k], searches_[k]);
          ++plans;
        }
        if (testing::Test::HasFailure()) {
          return plans;
        }
      }
    }
    return plans;
  }

  size_t pairs() const { return layouts_.size() * layouts_.size(); }

 private:
  void compare(
      size_t source, size_t target, const cases::NamedModel& named,
      brute_force::Search& search) {
    const auto plan = plan_redistribution(
        layouts_[source], layouts_[target], kElement, named.model);
    const double best = search.cheapest(source, target);
    EXPECT_NEAR(plan.cost, best, 1e-9 * best)
        << named.name << ": " << layouts_[source] << " -> " << layouts_[target]
        << "\n"
        << plan;
    check_steps(source, target, plan, search);
  }

  // Every step is one that the brute force knows, at the same price, and they
  // hold what the plan says.
  void check_steps(
      size_t source, size_t target, const RedistributePlan& plan,
      const brute_force::Search& search) const {
    size_t a = source;
    int64_t bytes = 0;
    int64_t peak = world_.size(source);
    for (const Step& step : plan.steps) {
      EXPECT_EQ(step.before, layouts_[a]) << plan;
      const auto found = find_step(a, target, step);
      ASSERT_TRUE(found.has_value()) << layouts_[a] << ": " << step;
      const auto price = step.kind == StepKind::kExchange
                             ? search.exchange_price(a, found->to)
                             : search.price(a, *found);
      EXPECT_EQ(step.bytes, kElement * price.elements) << step;
      EXPECT_NEAR(step.cost, price.cost, 1e-9 * price.cost) << step;
      const bool alone = a == source || step.kind == StepKind::kAllReduce ||
                         step.kind == StepKind::kToPartial;
      peak = std::max(
          peak, world_.size(source) + (alone ? 0 : world_.size(a)) +
                    world_.size(found->to));
      bytes += step.bytes;
      a = found->to;
    }
    EXPECT_EQ(a, target) << plan;
    EXPECT_EQ(plan.bytes, bytes) << plan;
    EXPECT_EQ(plan.peak_memory, kElement * peak) << plan;
  }

  std::optional<Edge> find_step(
      size_t a, size_t target, const Step& step) const {
    if (step.kind == StepKind::kExchange) {
      const auto b = searches_[0].arrival(a, target);
      return b && step.after == layouts_[*b]
                 ? std::optional<Edge>({Edge::kGather, *b, {}})
                 : std::nullopt;
    }
    for (const Edge& edge : world_.edges(a)) {
      if (kind_of(edge.kind) == step.kind && step.after == layouts_[edge.to] &&
          std::equal(
              edge.dims.begin(), edge.dims.end(), step.mesh_dims.begin(),
              step.mesh_dims.end(), [](size_t x, int64_t y) {
                return static_cast<int64_t>(x) == y;
              })) {
        return edge;
      }
    }
    return std::nullopt;
  }

  World world_;
  std::vector<Layout> layouts_;
  std::vector<brute_force::Search> searches_;
};

bool is_long() {
  const char* text = std::getenv("TESSERA_LONG");
  return text != nullptr && *text != 0 && std::string(text) != "0";
}

// All pairs with every machine model in the long form, else about `quota` pairs
// per shape, spread over all of them, with the models in turn.
void compare_all(
    const List& mesh, const std::vector<List>& shapes, size_t quota,
    bool every_model) {
  int64_t plans = 0;
  size_t pairs = 0;
  for (const List& shape : shapes) {
    Comparison comparison(World(shape, mesh, all_kinds(shape, mesh)));
    const size_t stride =
        is_long() ? 1 : std::max<size_t>(1, comparison.pairs() / quota) | 1;
    plans += comparison.run(stride, every_model);
    pairs += comparison.pairs();
  }
  std::cout << MeshShape(mesh) << ": " << plans << " plans, of " << pairs
            << " pairs\n";
}

TEST(PlanOptimalityTest, AgreesWithBruteForceOnOneDimMeshes) {
  for (int64_t ranks = 2; ranks <= 8; ++ranks) {
    compare_all(
        {ranks}, {{8}, {5}, {0}, {1, 3}, {ranks, 6}, {7, 3}, {2, 0, 3}}, 10000,
        true);
  }
}

TEST(PlanOptimalityTest, AgreesWithBruteForceOnTwoDimMeshes) {
  for (const int64_t inner : {2, 3}) {
    compare_all(
        {2, inner}, {{8}, {5}, {2}, {4, 6}, {5, 3}, {1, 7}, {0, 2}, {2, 3, 5}},
        100000, is_long());
  }
}

TEST(PlanOptimalityTest, AgreesWithBruteForceOnThreeDimMeshes) {
  compare_all(
      {2, 2, 2}, {{9}, {8, 4}, {5, 3}, {1, 6}, {0, 3}}, 2000, is_long());
}

TEST(PlanOptimalityTest, AgreesWithBruteForceOnKindsOfPartials) {
  const List mesh{2, 2};
  std::vector<Piece> pieces{
      {.kind = 'R'},
      {.kind = 'P'},
      {.kind = 'P', .op = 'a'},
      {.kind = 'P', .op = 'M'},
      {.kind = 'S'}};
  for (const int64_t size : {4, 7}) {
    Comparison comparison(World({size}, mesh, {pieces, pieces}));
    std::cout << comparison.run(1, true) << " plans\n";
  }
}

}  // namespace
}  // namespace tessera
