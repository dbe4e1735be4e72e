#include <iostream>
#include <limits>

#include <gtest/gtest.h>
#include <tessera/layout/notation.h>
#include <tessera/plan/redistribute_plan.h>

#include "plan/cases.h"

namespace tessera {
namespace {

MachineModel free_of_charge() {
  MachineModel model;
  model.link = {0, std::numeric_limits<double>::infinity()};
  model.copy_bandwidth = std::numeric_limits<double>::infinity();
  return model;
}

// Where nothing costs anything every plan is a tie.
TEST(PlanTiesTest, OfEqualPricesTheFewestStepsWin) {
  const std::vector<std::vector<std::string>> rows{
      {"S(0) S(1)", "S(1) S(0)", "1"},
      {"S(0)[1] S(0)[0]", "S(0) S(0)", "1"},
      {"P(sum) P(sum)", "S(0) S(1)", "1"},
      {"R R", "P(sum) P(sum)", "1"},
      {"P(sum) S(0)", "S(0) R", "2"},
      {"P(max) S(0)", "S(0) P(sum)", "3"}};
  for (const auto& row : rows) {
    const auto plan = plan_redistribution(
        parse_layout("[8, 8] " + row[0] + " @ mesh(2, 2)").layout,
        parse_layout("[8, 8] " + row[1] + " @ mesh(2, 2)").layout, 4,
        free_of_charge());
    EXPECT_EQ(std::to_string(plan.steps.size()), row[2]) << plan;
    EXPECT_EQ(plan.cost, 0);
  }
}

TEST(PlanTiesTest, OfEqualStepsTheFewestBytesWin) {
  const auto plan = plan_redistribution(
      parse_layout("[8, 8] S(0) R @ mesh(2, 4)").layout,
      parse_layout("[8, 8] P(sum) S(1) @ mesh(2, 4)").layout, 4,
      free_of_charge());
  EXPECT_EQ(plan.steps.size(), 2U) << plan;
  EXPECT_EQ(plan.bytes, 32) << plan;
}

// Whatever was planned before: ties are broken by the layouts alone.
TEST(PlanTiesTest, PlansRepeat) {
  const MeshShape mesh({2, 2});
  const std::vector<int64_t> shape{4, 6};
  const auto all =
      cases::layouts(shape, mesh, cases::rich_choices(shape, mesh));
  std::vector<std::string> first;
  const auto text = [&](const Layout& source, const Layout& target) {
    const auto plan = plan_redistribution(source, target, 4, free_of_charge());
    return to_json(plan);
  };
  for (const Layout& source : all) {
    for (const Layout& target : all) {
      first.push_back(text(source, target));
    }
  }
  for (size_t i = first.size(); i-- > 0;) {
    EXPECT_EQ(text(all[i / all.size()], all[i % all.size()]), first[i]);
  }
  std::cout << first.size() << " plans\n";
}

}  // namespace
}  // namespace tessera
