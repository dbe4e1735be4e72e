#include <iostream>

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include "plan/brute_force.h"
#include "plan/cases.h"

namespace tessera {
namespace {

// Slow and fast links, with and without latency: plans differ among them.
std::vector<MachineModel> models() {
  MachineModel bytes_only;
  bytes_only.link.latency = 0;
  MachineModel two_levels;
  two_levels.link = {1e-9, 100e9};
  two_levels.links = {{20e-9, 1e9}};
  MachineModel slow_inside;
  slow_inside.link = {20e-9, 1e9};
  slow_inside.links = {{1e-9, 10e9}};
  return {MachineModel{}, bytes_only, two_levels, slow_inside};
}

int64_t compare(const std::vector<Layout>& layouts, size_t stride) {
  int64_t count = 0;
  size_t pair = 0;
  const auto all_models = models();
  for (const Layout& source : layouts) {
    for (const Layout& target : layouts) {
      if (pair++ % stride != 0) {
        continue;
      }
      const auto& model = all_models[pair / stride % all_models.size()];
      const auto plan = plan_redistribution(source, target, 4, model);
      const double best =
          brute_force::Search(source, target, model, 4).cheapest();
      EXPECT_NEAR(plan.cost, best, 1e-9 * best) << source << "\n"
                                                << target << "\n"
                                                << plan;
      int64_t message = 0;
      for (const Step& step : plan.steps) {
        message = std::max(
            {message, brute_force::largest(step.before),
             brute_force::largest(step.after)});
      }
      EXPECT_LE(
          plan.peak_memory, 4 * (brute_force::largest(source) +
                                 brute_force::largest(target) + message))
          << source << "\n"
          << target << "\n"
          << plan;
      if (testing::Test::HasFailure()) {
        return count;
      }
      ++count;
    }
  }
  return count;
}

TEST(PlanOptimalityTest, AgreesWithBruteForceOnOneDimMeshes) {
  int64_t count = 0;
  for (const int64_t ranks : {2, 3, 4}) {
    const MeshShape mesh({ranks});
    for (const std::vector<int64_t>& shape :
         {std::vector<int64_t>{5}, {4, 6}, {0}, {7, 3}}) {
      count += compare(
          cases::layouts(shape, mesh, cases::rich_choices(shape, mesh)), 1);
    }
  }
  std::cout << count << " pairs\n";
}

TEST(PlanOptimalityTest, AgreesWithBruteForceOnTwoDimMeshes) {
  int64_t count = 0;
  for (const int64_t inner : {2, 3}) {
    const MeshShape mesh({2, inner});
    count +=
        compare(cases::layouts({5}, mesh, cases::rich_choices({5}, mesh)), 9);
    for (const std::vector<int64_t>& shape :
         {std::vector<int64_t>{4, 6}, {5, 3}}) {
      count += compare(
          cases::layouts(shape, mesh, cases::plain_choices(shape, mesh)), 3);
    }
  }
  std::cout << count << " pairs\n";
}

TEST(PlanOptimalityTest, AgreesWithBruteForceOnThreeDimMeshes) {
  int64_t count = 0;
  const MeshShape mesh({2, 2, 2});
  count +=
      compare(cases::layouts({9}, mesh, cases::plain_choices({9}, mesh)), 7);
  count += compare(
      cases::layouts({4, 6}, mesh, cases::plain_choices({4, 6}, mesh)), 151);
  std::cout << count << " pairs\n";
}

}  // namespace
}  // namespace tessera
