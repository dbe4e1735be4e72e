#include <iostream>

#include <gtest/gtest.h>

#include "plan/cases.h"
#include "plan/search/simulate.h"

namespace tessera {
namespace {

// Plans and runs every `stride`-th pair; returns how many.
int64_t run_pairs(
    const std::vector<Layout>& sources, const std::vector<Layout>& targets,
    size_t stride) {
  int64_t count = 0;
  cases::for_planned_pairs(
      sources, targets, stride, [&](const RedistributePlan& plan) {
        const std::string failure = simulation::Simulator(plan).run();
        EXPECT_EQ(failure, "") << plan.source << "\n"
                               << plan.target << "\n"
                               << plan;
        ++count;
        return failure.empty();
      });
  return count;
}

int64_t run_pairs(const std::vector<Layout>& layouts, size_t stride = 1) {
  return run_pairs(layouts, layouts, stride);
}

TEST(PlanSimulationTest, MovesEveryElementOnOneDimMeshes) {
  int64_t count = 0;
  for (int64_t ranks = 1; ranks <= 4; ++ranks) {
    const MeshShape mesh({ranks});
    for (int64_t size = 0; size <= 5; ++size) {
      count += run_pairs(
          cases::layouts({size}, mesh, cases::rich_choices({size}, mesh)));
      const std::vector<int64_t> shape{size, 3};
      count += run_pairs(
          cases::layouts(shape, mesh, cases::rich_choices(shape, mesh)));
    }
  }
  std::cout << count << " cases\n";
}

TEST(PlanSimulationTest, MovesEveryElementOnTwoDimMeshes) {
  int64_t count = 0;
  for (const int64_t inner : {2, 3}) {
    const MeshShape mesh({2, inner});
    for (int64_t size = 0; size <= 5; ++size) {
      count += run_pairs(
          cases::layouts({size}, mesh, cases::rich_choices({size}, mesh)));
      const std::vector<int64_t> shape{size, 3};
      count += run_pairs(
          cases::layouts(shape, mesh, cases::plain_choices(shape, mesh)));
    }
  }
  std::cout << count << " cases\n";
}

TEST(PlanSimulationTest, MovesEveryElementOnThreeDimMeshes) {
  int64_t count = 0;
  const MeshShape mesh({2, 2, 2});
  for (const int64_t size : {0, 1, 3, 5}) {
    count += run_pairs(
        cases::layouts({size}, mesh, cases::plain_choices({size}, mesh)));
    count += run_pairs(
        cases::layouts({size}, mesh, cases::rich_choices({size}, mesh)), 53);
  }
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{5, 3}, {2, 4}}) {
    count += run_pairs(
        cases::layouts(shape, mesh, cases::plain_choices(shape, mesh)), 17);
  }
  std::cout << count << " cases\n";
}

TEST(PlanSimulationTest, MovesEveryElementWhenOnlyThatOnTheWayIsSearched) {
  const MeshShape mesh({2, 1, 2, 2, 1, 2});
  const std::vector<int64_t> shape{5, 3, 2};
  const auto all = cases::layouts(
      shape, mesh,
      {{Replicate(), Shard(0)},
       {Shard(1), Partial()},
       {Shard(0), Partial()},
       {Replicate(), Partial(), Shard(2)},
       {Replicate()},
       {Shard(0), Partial(), Replicate()}});
  std::cout << run_pairs(all, 61) << " cases\n";
}

TEST(PlanSimulationTest, MovesEveryElementBetweenMeshes) {
  const std::vector<MeshShape> meshes{
      MeshShape({4}),
      MeshShape({2, 2}),
      MeshShape({3}),
      MeshShape({2, 3}),
      MeshShape::from_ranks({3, 1, 2, 0}, {2, 2}),
      MeshShape::from_ranks({5, 7}, {2})};
  int64_t count = 0;
  for (const MeshShape& from : meshes) {
    for (const MeshShape& to : meshes) {
      if (from == to) {
        continue;
      }
      for (const std::vector<int64_t>& shape :
           {std::vector<int64_t>{5}, {3, 4}, {0, 2}}) {
        count += run_pairs(
            cases::layouts(shape, from, cases::plain_choices(shape, from)),
            cases::layouts(shape, to, cases::rich_choices(shape, to)), 3);
      }
    }
  }
  std::cout << count << " cases\n";
}

}  // namespace
}  // namespace tessera
