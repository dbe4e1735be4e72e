#include <algorithm>
#include <chrono>
#include <iostream>

#include <gtest/gtest.h>
#include <tessera/layout/notation.h>
#include <tessera/plan/redistribute_plan.h>

#include "plan/cases.h"

namespace tessera {
namespace {

// The median of `times` cold plans, in milliseconds.
double median_ms(
    const Layout& source, const Layout& target, const MachineModel& model,
    size_t times) {
  std::vector<double> taken;
  for (size_t i = 0; i < times; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const auto plan = plan_redistribution(source, target, 2, model);
    const std::chrono::duration<double, std::milli> time =
        std::chrono::steady_clock::now() - begin;
    taken.push_back(time.count());
    EXPECT_FALSE(plan.steps.empty());
  }
  std::nth_element(taken.begin(), taken.begin() + times / 2, taken.end());
  return taken[times / 2];
}

struct Row {
  std::string from;
  std::string to;
};

// The slowest of several rows and of all machine models.
double slowest_ms(
    const std::string& shape, const std::string& mesh,
    const std::vector<Row>& rows) {
  double most = 0;
  for (const auto& named : cases::models()) {
    for (const auto& [from, to] : rows) {
      most = std::max(
          most, median_ms(
                    parse_layout(shape + from + mesh).layout,
                    parse_layout(shape + to + mesh).layout, named.model, 50));
    }
  }
  return most;
}

// The bounds leave room for busy machines and sanitizers; figures are printed.
constexpr double kSlack = TESSERA_SANITIZED ? 20 : 1;

TEST(PlanningTimeTest, SixMeshDimsTakeLessThanTwoMilliseconds) {
  const double most = slowest_ms(
      "[64, 64, 64, 64] ", " @ mesh(2, 2, 2, 2, 2, 2)",
      {{"S(0) S(0) S(1) P(sum) R P(sum)", "R S(1) S(3) P(sum) S(0) S(0)"},
       {"P(sum) P(sum) P(sum) P(sum) P(sum) P(sum)", "R R R R R R"},
       {"P(sum) P(sum) P(sum) P(sum) P(sum) P(sum)",
        "S(0) S(1) S(2) S(3) S(0) S(1)"},
       {"P(sum) P(sum) P(sum) P(sum) P(sum) P(sum)",
        "S(0) S(0) S(0) S(0) S(0) S(0)"},
       {"S(0) S(0) S(0) S(0) S(0) S(0)", "S(0) S(1) S(2) S(3) S(0) S(1)"},
       {"S(0) S(1) S(2) S(3) S(0) S(1)", "R R R R R R"},
       {"R R R R R R", "S(3) S(2) S(1) S(0) S(3) S(2)"}});
  std::cout << "slowest cold plan of a 4-d tensor on a 6-d mesh: " << most
            << " ms (median of 50)\n";
  EXPECT_LT(most, 4 * kSlack);
}

TEST(PlanningTimeTest, AWideSearchTakesMilliseconds) {
  const double most = slowest_ms(
      "[64, 64, 64, 64] ", " @ mesh(2, 2, 2)",
      {{"P(sum) P(sum) P(sum)", "R R R"},
       {"P(sum) P(sum) P(sum)", "S(3) S(2) S(1)"},
       {"S(0) S(0) S(0)", "S(1) S(2) S(3)"},
       {"S(0) P(sum) S(1)", "S(1) R P(sum)"},
       {"S(0) S(0) R", "R S(0)[1] S(0)[0]"},
       {"R R R", "P(sum) S(0) S(1)"}});
  std::cout << "slowest cold plan of a 4-d tensor on a 3-d mesh: " << most
            << " ms (median of 50)\n";
  EXPECT_LT(most, 10 * kSlack);
}

TEST(PlanningTimeTest, LargeMeshesTakeMillisecondsToo) {
  const double most = slowest_ms(
      "[1048576, 4096] ", " @ mesh(256, 256)", {{"S(0) S(1)", "S(1) S(0)"}});
  std::cout << "slowest cold plan on 65,536 ranks: " << most
            << " ms (median of 50)\n";
  EXPECT_LT(most, 10 * kSlack);
}

}  // namespace
}  // namespace tessera
