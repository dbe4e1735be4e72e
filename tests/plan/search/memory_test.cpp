#include <algorithm>
#include <iostream>

#include <gtest/gtest.h>
#include <tessera/plan/redistribute_plan.h>

#include "plan/cases.h"
#include "plan/search/simulate.h"

namespace tessera {
namespace {

int64_t largest(const Layout& layout) {
  size_t most = 0;
  for (const auto& at : reference::coordinates(layout.mesh().sizes())) {
    most = std::max(most, simulation::indices(layout, at).size());
  }
  return static_cast<int64_t>(most);
}

// The peak is what the steps need, and at most source + target + the largest
// input or output.
void check(const RedistributePlan& plan) {
  const int64_t source = largest(plan.source);
  int64_t peak = source;
  int64_t message = source;
  int64_t before = 0;
  for (const Step& step : plan.steps) {
    const int64_t after = largest(step.after);
    peak = std::max(peak, source + (step.is_in_place() ? 0 : before) + after);
    message = std::max(message, after);
    before = after;
  }
  EXPECT_EQ(plan.peak_memory, plan.element_size * peak) << plan;
  EXPECT_LE(peak, source + largest(plan.target) + message)
      << plan.source << " -> " << plan.target << "\n"
      << plan;
}

TEST(PlanMemoryTest, PlansBetweenMeshesKeepTheLimit) {
  const std::vector<std::pair<MeshShape, MeshShape>> meshes{
      {MeshShape({2, 2}), MeshShape({4})},
      {MeshShape({2, 2}), MeshShape::from_ranks({4, 5, 6, 7, 8, 9}, {6})},
      {MeshShape({2, 3}), MeshShape({3, 2})},
      {MeshShape({2, 2, 2}), MeshShape({8})}};
  int64_t plans = 0;
  for (const auto& [from, to] : meshes) {
    for (const std::vector<int64_t>& shape :
         {std::vector<int64_t>{8}, {5}, {4, 6}, {3, 1}}) {
      const auto sources =
          cases::layouts(shape, from, cases::plain_choices(shape, from));
      const auto targets =
          cases::layouts(shape, to, cases::plain_choices(shape, to));
      const size_t stride = sources.size() > 50 ? 11 : 1;
      for (size_t i = 0; i < sources.size(); i += stride) {
        for (const Layout& target : targets) {
          const auto& models = cases::models();
          const auto& model = models[plans++ % models.size()].model;
          check(plan_redistribution(sources[i], target, 4, model));
        }
      }
    }
  }
  std::cout << plans << " plans\n";
}

// A limit a byte below what the cheapest plan needs: another plan that needs
// less, if there is one, and never a cheaper one; else the same.
TEST(PlanMemoryTest, AMemoryLimitTakesPlansThatNeedLess) {
  int64_t plans = 0;
  int64_t lighter = 0;
  for (const MeshShape& mesh :
       {MeshShape({4}), MeshShape({2, 2}), MeshShape({2, 3})}) {
    for (const std::vector<int64_t>& shape :
         {std::vector<int64_t>{8}, {4, 6}, {5, 2}}) {
      const auto layouts =
          cases::layouts(shape, mesh, cases::plain_choices(shape, mesh));
      for (const Layout& source : layouts) {
        for (const Layout& target : layouts) {
          const auto& models = cases::models();
          MachineModel model = models[plans++ % models.size()].model;
          const auto any = plan_redistribution(source, target, 4, model);
          model.memory_limit = std::max<int64_t>(any.peak_memory, 1);
          EXPECT_EQ(
              to_string(plan_redistribution(source, target, 4, model)),
              to_string(any));
          if (any.peak_memory <= 1) {
            continue;
          }
          model.memory_limit = any.peak_memory - 1;
          const auto limited = plan_redistribution(source, target, 4, model);
          check(limited);
          if (limited.peak_memory <= model.memory_limit) {
            ++lighter;
            EXPECT_GE(limited.cost, any.cost);
          } else {
            EXPECT_EQ(to_string(limited), to_string(any));
          }
        }
      }
    }
  }
  EXPECT_GT(lighter, 0);
  std::cout << plans << " plans, " << lighter << " need less with a limit\n";
}

}  // namespace
}  // namespace tessera
