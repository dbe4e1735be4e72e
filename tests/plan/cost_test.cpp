#include <tessera/plan/cost.h>

#include <cmath>

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

TEST(CostTest, CountsTheMessagesOfRecordedCallsByTheirNames) {
  EXPECT_EQ(message_count("send", 8), 1);
  EXPECT_EQ(message_count("recv", 8), 1);
  EXPECT_EQ(message_count("all_reduce", 8), 6);
  EXPECT_EQ(message_count("broadcast", 8), 3);
}

// 1 s per message, 1 byte per second sent, 1000 written: digits tell them
// apart.
TEST(CostTest, PricesATransitionOfOneMeshDim) {
  MachineModel model;
  model.link = {100, 1};
  model.links = {{7, 7}};
  model.copy_bandwidth = 1000;
  const auto cost = [&](const Placement& from, const Placement& to) {
    return transition_cost(model, 1, 4, from, to, 8);
  };
  EXPECT_DOUBLE_EQ(cost(Shard(0), Replicate()), 200 + 6 + 0.008);
  EXPECT_DOUBLE_EQ(cost(Shard(0), Shard(1)), 200 + 1.5 + 0.002);
  EXPECT_DOUBLE_EQ(cost(Partial(), Replicate()), 400 + 12 + 0.008);
  EXPECT_DOUBLE_EQ(cost(Partial(), Shard(1)), 200 + 6 + 0.002);
  EXPECT_DOUBLE_EQ(cost(Replicate(), Shard(1)), 1e-9 + 0.002);
  EXPECT_DOUBLE_EQ(cost(Replicate(), Partial()), 1e-9 + 0.008);
  EXPECT_EQ(cost(Shard(1), Shard(1)), 0);
  EXPECT_TRUE(std::isinf(cost(Shard(0), Partial())));
  EXPECT_EQ(transition_cost(model, 1, 1, Shard(0), Partial(), 8), 1e-9);
  EXPECT_EQ(
      transition_cost(model, 0, 2, Shard(0), Replicate(), 14), 7 + 1 + 0.014);
}

}  // namespace
}  // namespace tessera
