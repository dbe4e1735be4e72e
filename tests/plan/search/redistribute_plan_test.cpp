#include <tessera/plan/redistribute_plan.h>

#include <sstream>

#include <gtest/gtest.h>
#include <tessera/layout/notation.h>
#include <tessera/plan/exchange.h>

#include "layout/expect_error.h"

namespace tessera {
namespace {

RedistributePlan plan_of(
    const std::string& source, const std::string& target,
    const MachineModel& model = {}) {
  return plan_redistribution(
      parse_layout(source).layout, parse_layout(target).layout, 4, model);
}

// The kinds of a plan's steps, "slice all_gather".
std::string kinds(const RedistributePlan& plan) {
  std::string text;
  for (const Step& step : plan.steps) {
    text += (text.empty() ? "" : " ") + std::string(to_string(step.kind));
  }
  return text;
}

TEST(RedistributePlanTest, OneDimNeedsOneStep) {
  const std::vector<std::vector<std::string>> rows{
      {"S(0)", "R", "all_gather"},
      {"S(0)", "S(1)", "all_to_all"},
      {"P(sum)", "R", "all_reduce"},
      {"P(sum)", "S(1)", "reduce_scatter"},
      {"R", "S(1)", "slice"},
      {"R", "P(max)", "to_partial"},
      {"SS(0,2)", "S(1)", "all_to_all"},
      {"RS(0,[5,3,0,0])", "R", "all_gather"},
      {"P(sum)", "P(max)", "all_reduce to_partial"},
      {"S(0)", "P(sum)", "all_gather to_partial"},
      {"R", "R", ""}};
  for (const auto& row : rows) {
    const auto plan = plan_of(
        "[8, 8] " + row[0] + " @ mesh(4)", "[8, 8] " + row[1] + " @ mesh(4)");
    EXPECT_EQ(kinds(plan), row[2]) << row[0] << " -> " << row[1];
  }
}

TEST(RedistributePlanTest, CutsBeforeItGathers) {
  const auto plan = plan_of(
      "[64, 64] S(0) R @ mesh(dp=2, tp=4)",
      "[64, 64] R S(1) @ mesh(dp=2, tp=4)");
  ASSERT_EQ(kinds(plan), "slice all_gather");
  EXPECT_EQ(plan.steps[1].mesh_dims, std::vector<int64_t>{0});
  EXPECT_EQ(to_string(plan.steps[1].from()), "S(0)");
  EXPECT_EQ(to_string(plan.steps[1].to()), "R");
  EXPECT_EQ(plan.bytes, 64 * 16 * 4 / 2);
  // Two messages more are less than a copy of 512 KiB.
  EXPECT_EQ(
      kinds(plan_of(
          "[1024, 1024] S(0) R @ mesh(dp=2, tp=4)",
          "[1024, 1024] R S(1) @ mesh(dp=2, tp=4)")),
      "exchange");
}

TEST(RedistributePlanTest, ReducesInsideTheFastMeshDimFirst) {
  MachineModel model;
  model.link = {1e-6, 100e9};
  model.links = {{10e-6, 5e9}};
  const auto plan = plan_of(
      "[4096, 4096] P(sum) P(sum) @ mesh(host=4, gpu=8)",
      "[4096, 4096] R R @ mesh(host=4, gpu=8)", model);
  ASSERT_EQ(kinds(plan), "reduce_scatter all_reduce all_gather") << plan;
  EXPECT_EQ(plan.steps[0].mesh_dims, std::vector<int64_t>{1});
}

TEST(RedistributePlanTest, GathersBeforeItExchangesTheRest) {
  MachineModel model;
  const auto plan = [&] {
    return plan_of(
        "[64, 64] S(0) S(0) @ mesh(2, 4)", "[64, 64] S(1) R @ mesh(2, 4)",
        model);
  };
  // As many messages in one step as in two, which would send more.
  EXPECT_EQ(kinds(plan()), "exchange") << plan();
  model.links = {{50e-6, 10e9}};
  EXPECT_EQ(kinds(plan()), "all_gather all_to_all") << plan();
}

TEST(RedistributePlanTest, ReducesNeighbouringMeshDimsTogether) {
  const auto plan =
      plan_of("[5, 3] P(sum) P(sum) @ mesh(3, 1)", "[5, 3] R R @ mesh(3, 1)");
  ASSERT_EQ(kinds(plan), "all_reduce");
  EXPECT_EQ(plan.steps[0].mesh_dims, (std::vector<int64_t>{0, 1}));
}

TEST(RedistributePlanTest, TakesAllMeshDimsAtOnceWhereOneStepCan) {
  const std::vector<int64_t> all{0, 1, 2};
  for (const char* shape : {"[64, 64]", "[4096, 4096]", "[13, 3]", "[1, 1]"}) {
    for (const char* mesh : {"mesh(2, 2, 2)", "mesh(4, 2, 3)"}) {
      for (const auto& [from, kind] :
           std::vector<std::pair<std::string, std::string>>{
               {"P(sum) P(sum) P(sum)", "all_reduce"},
               {"S(0) S(0) S(0)", "all_gather"},
               {"S(0) S(1) S(0)", "all_gather"},
               {"S(0)[1] S(0)[2] S(0)[0]", "all_gather"}}) {
        const auto plan = plan_of(
            c10::str(shape, " ", from, " @ ", mesh),
            c10::str(shape, " R R R @ ", mesh));
        ASSERT_EQ(kinds(plan), kind) << plan;
        EXPECT_EQ(plan.steps[0].mesh_dims, all) << plan;
      }
    }
  }
}

TEST(RedistributePlanTest, TakesASlowMeshDimByItself) {
  MachineModel model;
  model.links = {{100e-6, 1e9}};
  const auto plan = plan_of(
      "[64, 64] P(sum) P(sum) P(sum) @ mesh(2, 4, 4)",
      "[64, 64] R R R @ mesh(2, 4, 4)", model);
  ASSERT_EQ(kinds(plan), "reduce_scatter all_reduce all_gather") << plan;
  EXPECT_EQ(plan.steps[0].mesh_dims, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(plan.steps[1].mesh_dims, std::vector<int64_t>{0});
  EXPECT_EQ(plan.steps[2].mesh_dims, (std::vector<int64_t>{1, 2}));
}

TEST(RedistributePlanTest, ExchangesWhereTheOrderOfCutsChanges) {
  const auto plan = plan_of(
      "[8192] S(0)[1] S(0)[0] @ mesh(2, 2)", "[8192] S(0) S(0) @ mesh(2, 2)");
  EXPECT_EQ(kinds(plan), "exchange");
  EXPECT_EQ(plan.bytes, 2048 * 4);
}

TEST(RedistributePlanTest, ReducesOneKindBeforeItMakesAnother) {
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{
           {"R P(sum)", "P(max) R"}, {"P(sum) R", "R P(max)"}}) {
    const auto plan =
        plan_of("[8] " + from + " @ mesh(2, 2)", "[8] " + to + " @ mesh(2, 2)");
    EXPECT_EQ(kinds(plan), "all_reduce to_partial") << plan;
  }
}

TEST(RedistributePlanTest, RenamingMeshDimsCostsNothing) {
  const auto plan = plan_of("[8] S(0) @ mesh(a=4)", "[8] S(0) @ mesh(b=4)");
  EXPECT_TRUE(plan.steps.empty());
  EXPECT_EQ(
      kinds(plan_of("[8] S(0) @ mesh(a=4)", "[8] R @ mesh(b=4)")),
      "all_gather");
}

TEST(RedistributePlanTest, ReducesBeforeItLeavesTheMesh) {
  const auto plan =
      plan_of("[8, 8] P(sum) @ mesh(4)", "[8, 8] S(0) @ mesh(2; ranks 4 5)");
  EXPECT_EQ(plan.steps.back().kind, StepKind::kExchange);
  EXPECT_FALSE(plan.steps.front().after.has_partial());
  EXPECT_NE(
      to_string(plan.steps.back()).find("mesh(4) -> mesh(2; ranks 4 5)"),
      std::string::npos)
      << plan;
}

TEST(RedistributePlanTest, MeshesOfManyDimsArePlannedWithoutSearch) {
  const std::string mesh = " @ mesh(1, 2, 1, 2, 1, 1, 1, 1, 2)";
  const auto plan = plan_of(
      "[6] S(0) P(sum) P(sum) R R R R R S(0)" + mesh,
      "[6] R S(0) R P(max) R R R R R" + mesh);
  ASSERT_EQ(kinds(plan), "all_reduce exchange to_partial");
  EXPECT_EQ(plan.steps[0].mesh_dims, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(plan.steps.back().after, plan.target);
}

TEST(RedistributePlanTest, PeakMemoryStaysInItsLimit) {
  const auto plan = plan_of(
      "[64, 64] P(sum) P(sum) @ mesh(2, 2)", "[64, 64] S(0) S(1) @ mesh(2, 2)");
  const int64_t source = 64 * 64 * 4;
  EXPECT_GT(plan.peak_memory, source);
  EXPECT_LE(plan.peak_memory, source + source / 4 + source);
  EXPECT_EQ(
      plan_of("[64] R @ mesh(2)", "[64] R @ mesh(2)").peak_memory, 64 * 4);
}

TEST(RedistributePlanTest, PrintsOneLinePerStep) {
  const auto plan = plan_of(
      "[8, 8] S(0) R @ mesh(dp=2, tp=2)", "[8, 8] R S(1) @ mesh(dp=2, tp=2)");
  ASSERT_EQ(kinds(plan), "slice all_gather");
  std::ostringstream out;
  out << plan;
  EXPECT_EQ(
      out.str(),
      "1. slice tp: R -> S(1), 0 bytes, 3.2e-09 s\n"
      "2. all_gather dp: S(0) -> R, 64 bytes, 5.01e-06 s\n"
      "total: 64 bytes per rank, 5.02e-06 s, peak memory 320 bytes\n");
  EXPECT_EQ(
      to_json(plan.steps[1]),
      "{\"kind\": \"all_gather\", \"mesh_dims\": [0], \"from\": \"S(0)\", "
      "\"to\": \"R\", \"after\": \"[8, 8] R S(1) @ mesh(dp=2, tp=2)\", "
      "\"bytes\": 64, \"cost\": 5.0128e-06}");
  EXPECT_EQ(
      to_string(plan_of("[8] R @ mesh(2)", "[8] R @ mesh(2)")),
      "nothing to do: 0 bytes per rank, 0 s, peak memory 32 bytes\n");
}

TEST(RedistributePlanTest, RefusesWhatCannotBePlanned) {
  const Layout source = parse_layout("[8] S(0) @ mesh(2)").layout;
  const Layout target = parse_layout("[8] R @ mesh(2)").layout;
  const Layout other = parse_layout("[9] R @ mesh(2)").layout;
  EXPECT_VALUE_ERROR(plan_redistribution(source, other, 4), "one shape");
  EXPECT_VALUE_ERROR(
      plan_redistribution(source, target, 0), "at least 1 byte; got");
  MachineModel model;
  model.links = {{-1, 1e9}};
  EXPECT_VALUE_ERROR(
      plan_redistribution(source, target, 4, model), "a latency that is not");
  model.links = {{0, 0}};
  EXPECT_VALUE_ERROR(
      plan_redistribution(source, target, 4, model), "bandwidth above 0");
  model = {};
  model.copy_bandwidth = 0;
  EXPECT_VALUE_ERROR(
      plan_redistribution(source, target, 4, model), "copy bandwidth");
  model = {};
  model.memory_limit = 0;
  EXPECT_VALUE_ERROR(
      plan_redistribution(source, target, 4, model), "memory limit");
}

}  // namespace
}  // namespace tessera
