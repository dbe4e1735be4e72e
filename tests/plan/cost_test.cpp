#include <tessera/plan/cost.h>

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(CostTest, AGroupIsAsSlowAsItsSlowestLink) {
  MachineModel model;
  model.link = {2, 20};
  model.links = {{1, 10}, {3, 30}};
  EXPECT_EQ(model.over({0, 1}).latency, 3);
  EXPECT_EQ(model.over({0, 1}).bandwidth, 10);
  EXPECT_EQ(model.over({1}).bandwidth, 30);
  EXPECT_EQ(model.over({2}).latency, 2);
  EXPECT_EQ(model.over({}).bandwidth, 20);
}

TEST(CostTest, CountsMessagesAndElements) {
  EXPECT_EQ(message_count(StepKind::kSlice, 4), 0);
  EXPECT_EQ(message_count(StepKind::kToPartial, 4), 0);
  const std::vector<std::pair<int64_t, int64_t>> rounds = {
      {1, 0}, {2, 1}, {3, 2}, {4, 2}, {5, 3}, {8, 3}, {9, 4}, {64, 6}};
  for (const auto& [ranks, count] : rounds) {
    EXPECT_EQ(message_count(StepKind::kAllGather, ranks), count) << ranks;
    EXPECT_EQ(message_count(StepKind::kAllToAll, ranks), count) << ranks;
    EXPECT_EQ(message_count(StepKind::kAllReduce, ranks), 2 * count) << ranks;
    EXPECT_EQ(message_count(StepKind::kExchange, ranks), count) << ranks;
  }
  EXPECT_EQ(elements_sent(StepKind::kAllGather, 4, 2, 8), 6);
  EXPECT_EQ(elements_sent(StepKind::kReduceScatter, 4, 8, 2), 6);
  EXPECT_EQ(elements_sent(StepKind::kAllReduce, 4, 8, 8), 12);
  EXPECT_EQ(elements_sent(StepKind::kAllToAll, 3, 5, 4), 4);
  EXPECT_EQ(elements_sent(StepKind::kSlice, 4, 8, 2), 0);
}

TEST(CostTest, AddsLatencyTransferAndCopy) {
  MachineModel model;
  model.copy_bandwidth = 4;
  EXPECT_DOUBLE_EQ(step_cost(model, {0.5, 2}, 3, 8, 4), 1.5 + 4 + 1);
}

}  // namespace
}  // namespace tessera
