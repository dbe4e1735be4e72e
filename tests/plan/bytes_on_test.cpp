#include <algorithm>
#include <iostream>
#include <map>

#include <gtest/gtest.h>
#include <tessera/layout/notation.h>
#include <tessera/plan/exchange.h>
#include <tessera/plan/redistribute_plan.h>

#include "layout/expect_error.h"
#include "plan/cases.h"
#include "plan/search/simulate.h"

namespace tessera {
namespace {

using reference::List;

Step exchange_of(const Layout& source, const Layout& target) {
  const int64_t bytes = 4 * exchange_elements(source, target);
  return {StepKind::kExchange, {}, source, target, bytes};
}

// What each rank sends and receives, from the lists of all transfers.
struct Moved {
  int64_t sent = 0;
  int64_t received = 0;
};
std::map<int64_t, Moved> moved(const Step& step) {
  std::map<int64_t, Moved> result;
  for (const int64_t rank : step.after.mesh().ranks()) {
    for (const Transfer& move :
         exchange_transfers(step.before, step.after, rank)) {
      if (move.to == rank && move.from != rank) {
        result[rank].received += move.box.numel();
        result[move.from].sent += move.box.numel();
      }
    }
  }
  return result;
}

int64_t elements(const Layout& layout, const List& at) {
  return static_cast<int64_t>(simulation::indices(layout, at).size());
}

// G - G / n of the shards at a coordinate, all_reduce twice.
int64_t expected(const Step& step, const List& at) {
  const int64_t larger =
      std::max(elements(step.before, at), elements(step.after, at));
  int64_t ranks = 1;
  for (const int64_t m : step.mesh_dims) {
    ranks *= step.before.mesh().size(m);
  }
  const int64_t times = step.kind == StepKind::kAllReduce ? 2 : 1;
  return step.is_local() ? 0 : times * (larger - larger / ranks);
}

void check(const Step& step) {
  auto ranks = step.before.mesh().ranks();
  const auto others = step.after.mesh().ranks();
  ranks.insert(ranks.end(), others.begin(), others.end());
  const bool exchange = step.kind == StepKind::kExchange;
  auto counted = exchange ? moved(step) : std::map<int64_t, Moved>();
  int64_t most = 0;
  for (const int64_t rank : ranks) {
    const int64_t bytes = bytes_on_rank(step, 4, rank);
    most = std::max(most, bytes);
    const auto at = step.before.mesh().coordinate_of(rank);
    if (at) {
      EXPECT_EQ(bytes_on(step, 4, *at), bytes);
    }
    const int64_t elements =
        exchange ? std::max(counted[rank].sent, counted[rank].received)
                 : expected(step, *at);
    EXPECT_EQ(bytes, 4 * elements) << "rank " << rank << ": " << step;
  }
  EXPECT_EQ(most, step.bytes) << step.before << ": " << step;
}

int64_t check_pairs(
    const std::vector<Layout>& sources, const std::vector<Layout>& targets,
    size_t stride) {
  int64_t steps = 0;
  cases::for_planned_pairs(
      sources, targets, stride, [&](const RedistributePlan& plan) {
        for (const Step& step : plan.steps) {
          check(step);
          ++steps;
        }
        if (!plan.source.has_partial()) {
          check(exchange_of(plan.source, plan.target));
          ++steps;
        }
        return !testing::Test::HasFailure();
      });
  return steps;
}

TEST(BytesOnTest, TheBusiestRankMovesTheBytesOfTheStep) {
  int64_t steps = 0;
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{2}, {3}, {5}, {2, 2}, {2, 3}, {2, 2, 2}}) {
    const MeshShape mesh(sizes);
    for (const std::vector<int64_t>& shape :
         {std::vector<int64_t>{5}, {4, 3}, {0, 2}}) {
      const bool rich = shape.size() == 1 || mesh.ndim() == 1;
      const auto all = cases::layouts(
          shape, mesh,
          rich ? cases::rich_choices(shape, mesh)
               : cases::plain_choices(shape, mesh));
      steps += check_pairs(all, all, all.size() > 50 ? 17 : 1);
    }
  }
  std::cout << steps << " steps\n";
}

TEST(BytesOnTest, CountsRanksOfBothMeshes) {
  const std::vector<MeshShape> meshes{
      MeshShape({4}), MeshShape({2, 3}),
      MeshShape::from_ranks({3, 1, 2, 0}, {2, 2}),
      MeshShape::from_ranks({5, 7}, {2})};
  int64_t steps = 0;
  for (const MeshShape& from : meshes) {
    for (const MeshShape& to : meshes) {
      const std::vector<int64_t> shape{5, 2};
      steps += check_pairs(
          cases::layouts(shape, from, cases::plain_choices(shape, from)),
          cases::layouts(shape, to, cases::rich_choices(shape, to)), 5);
    }
  }
  std::cout << steps << " steps\n";
}

TEST(BytesOnTest, SaysWhatARankMoves) {
  const Layout source = parse_layout("[5, 2] RS(0,[5,0]) @ mesh(2)").layout;
  const Layout whole = parse_layout("[5, 2] R @ mesh(2)").layout;
  const Step gather{StepKind::kAllGather, {0}, source, whole};
  EXPECT_EQ(bytes_on(gather, 4, {0}), 4 * 5);
  EXPECT_EQ(bytes_on(gather, 4, {1}), 4 * 5);
  const Layout uneven = parse_layout("[5, 2] S(0) @ mesh(2)").layout;
  const Layout columns = parse_layout("[5, 2] S(1) @ mesh(2)").layout;
  const Step turn{StepKind::kAllToAll, {0}, uneven, columns};
  EXPECT_EQ(bytes_on(turn, 4, {0}), 4 * 3);
  EXPECT_EQ(bytes_on(turn, 4, {1}), 4 * 3);
  EXPECT_EQ(bytes_on_rank(turn, 4, 2), 0);
  const Step exchange{
      StepKind::kExchange,
      {0},
      source,
      parse_layout("[5, 2] R @ mesh(3; ranks 0 1 4)").layout};
  EXPECT_EQ(bytes_on_rank(exchange, 4, 0), 4 * 20);
  EXPECT_EQ(bytes_on_rank(exchange, 4, 4), 4 * 10);
  EXPECT_EQ(bytes_on_rank(exchange, 4, 3), 0);
}

TEST(BytesOnTest, RefusesACoordinateOutsideTheMesh) {
  const Layout uneven = parse_layout("[5] S(0) @ mesh(2)").layout;
  const Layout whole = parse_layout("[5] R @ mesh(2)").layout;
  const Step gather{StepKind::kAllGather, {0}, uneven, whole};
  EXPECT_INDEX_ERROR(bytes_on(gather, 4, {2}), "coordinate");
  EXPECT_VALUE_ERROR(
      exchange_elements_on(
          parse_layout("[5] P(sum) @ mesh(2)").layout, whole, 0),
      "must be reduced first");
}

}  // namespace
}  // namespace tessera
