// What a fully sharded module communicates: counts and bytes, exactly.
#include "block_net.h"

namespace tessera {
namespace {

using testing::BlockNet;
using testing::Counts;
using testing::counts_of;
using testing::mesh_of;
using testing::net_loss_on;

constexpr int64_t kBlock = (16 * 64 + 64 + 64 * 16 + 16) * 4;
constexpr int64_t kRoot = (50 * 16 + 16 * 50 + 50) * 4;

struct StepCounts {
  Counts forward;
  Counts backward;
};
StepCounts count_step(BlockNet& net, const DeviceMesh& mesh) {
  StepCounts counts;
  at::Tensor loss;
  {
    const CommLog log;
    loss = net_loss_on(net, mesh);
    counts.forward = counts_of(log);
  }
  const CommLog log;
  loss.backward();
  counts.backward = counts_of(log);
  return counts;
}

TEST(FullyShardCounts, OfAStepOnTwoRanks) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2}, {"dp"});
    BlockNet net(at::kFloat);
    auto sharded = fully_shard(net, mesh, {.groups = {"blocks.*"}});
    for (int step = 0; step < 3; ++step) {
      const StepCounts counts = count_step(net, mesh);
      EXPECT_EQ(
          counts.forward,
          (Counts{.gathers = 4, .gather_bytes = (3 * kBlock + kRoot) / 2}))
          << step;
      EXPECT_EQ(
          counts.backward, (Counts{
                               .gathers = 2,
                               .gather_bytes = kBlock,
                               .reductions = 4,
                               .reduction_bytes = (3 * kBlock + kRoot) / 2}))
          << step;
      EXPECT_EQ(sharded.report().gathers, 6);
      EXPECT_EQ(sharded.report().reductions, 4);
      EXPECT_EQ(sharded.report().gathered_bytes, 0);
      for (const at::Tensor& p : net.parameters()) {
        p.mutable_grad().reset();
      }
    }
    EXPECT_EQ((3 * kBlock + kRoot) / 2, 16068);
  });
}

// 2,128 elements of a block over 3 ranks: nothing is padded.
TEST(FullyShardCounts, BytesOfUnevenShardsAreTheirTrueSizes) {
  run_ranks(3, [] {
    const auto mesh = mesh_of({3}, {"dp"});
    BlockNet net(at::kFloat);
    const auto sharded = fully_shard(net, mesh, {.groups = {"blocks.*"}});
    const CommLog log;
    net_loss_on(net, mesh).backward();
    const int64_t block = (2128 - 2128 / 3) * 4;
    const int64_t root = (1650 - 1650 / 3) * 4;
    EXPECT_EQ(
        counts_of(log), (Counts{
                            .gathers = 6,
                            .gather_bytes = 5 * block + root,
                            .reductions = 4,
                            .reduction_bytes = 3 * block + root}));
  });
}

TEST(FullyShardCounts, GroupsThatStayWholeAreNotGatheredAgain) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2}, {"dp"});
    BlockNet net;
    const auto sharded = fully_shard(
        net, mesh, {.groups = {"blocks.*"}, .reshard_after_forward = false});
    const StepCounts counts = count_step(net, mesh);
    EXPECT_EQ(counts.forward.gathers, 4);
    EXPECT_EQ(counts.backward.gathers, 0);
    EXPECT_EQ(counts.backward.reductions, 4);
  });
}

// The derivative of an embedding does not read its weight.
TEST(FullyShardCounts, WeightsThatBackwardDoesNotReadAreNotGatheredAgain) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2}, {"dp"});
    BlockNet net;
    const auto sharded =
        fully_shard(net, mesh, {.groups = {"tokens", "blocks.*", "head"}});
    for (int step = 0; step < 2; ++step) {
      const StepCounts counts = count_step(net, mesh);
      EXPECT_EQ(counts.forward.gathers, 5);
      EXPECT_EQ(counts.backward.gathers, 3);  // the head stays
      EXPECT_EQ(counts.backward.reductions, 5);
    }
    EXPECT_EQ(
        sharded.report().backward_order,
        (std::vector<std::string>{"blocks.2", "blocks.1", "blocks.0"}));
    EXPECT_EQ(
        sharded.report().forward_order,
        (std::vector<std::string>{
            "tokens", "blocks.0", "blocks.1", "blocks.2", "head"}));
  });
}

TEST(FullyShardCounts, EvaluationGathersEachGroupOnce) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2}, {"dp"});
    BlockNet net;
    auto sharded = fully_shard(net, mesh, {.groups = {"blocks.*"}});
    for (const bool inference : {false, true}) {
      const c10::InferenceMode mode(inference);
      const torch::NoGradGuard no_grad;
      const CommLog log;
      net_loss_on(net, mesh);
      EXPECT_EQ(counts_of(log).gathers, 4) << inference;
      sharded.reshard();
      EXPECT_EQ(sharded.report().gathered_bytes, 0);
    }
  });
}

TEST(FullyShardCounts, RowsOfAccumulation) {
  using Keep = FullyShard::Accumulate::Keep;
  BlockNet plain;
  for (int64_t i = 0; i < 3; ++i) {
    testing::plain_net_loss(plain, i).backward();
  }
  const std::vector<std::tuple<Keep, int64_t, int64_t>> rows = {
      {Keep::kShards, 18, 12},
      {Keep::kUnreduced, 18, 4},
      {Keep::kUnreducedAndWeights, 4, 4}};
  for (const auto& [keep, gathers, reductions] : rows) {
    run_ranks(2, [&, keep = keep, gathers = gathers, reductions = reductions] {
      const auto mesh = mesh_of({2}, {"dp"});
      BlockNet net;
      auto sharded = fully_shard(net, mesh, {.groups = {"blocks.*"}});
      const CommLog log;
      {
        const FullyShard::Accumulate accumulate(sharded, keep);
        net_loss_on(net, mesh, 0).backward();
        net_loss_on(net, mesh, 1).backward();
      }
      net_loss_on(net, mesh, 2).backward();
      const Counts counts = counts_of(log);
      EXPECT_EQ(counts.gathers, gathers);
      EXPECT_EQ(counts.reductions, reductions);
      EXPECT_EQ(sharded.report().gathered_bytes, 0);
      testing::expect_equal_gradients(net, plain);
    });
  }
}

// Shards along dp, copies along rep: a reduce_scatter, then an all_reduce of
// what it leaves.
TEST(FullyShardCounts, HybridShardsReduceOverCopiesOnce) {
  using Keep = FullyShard::Accumulate::Keep;
  BlockNet plain;
  testing::plain_net_loss(plain, 0).backward();
  testing::plain_net_loss(plain, 1).backward();
  for (const Keep keep : {Keep::kShards, Keep::kUnreduced}) {
    run_ranks(4, [&] {
      const auto mesh = mesh_of({2, 2}, {"rep", "dp"});
      BlockNet net(at::kDouble);
      auto sharded = fully_shard(
          net, mesh, {.replicate_dim = "rep", .groups = {"blocks.*"}});
      const auto loss = [&](int64_t step) {
        return testing::net_loss(net.forward(distribute_tensor(
            testing::net_indices(step), mesh, {Shard(0), Shard(0)})));
      };
      const CommLog log;
      {
        const FullyShard::Accumulate accumulate(sharded, keep);
        loss(0).backward();
        EXPECT_FALSE(net.head->weight.grad().defined());
        EXPECT_TRUE(sharded.report().groups[0].is_accumulating);
      }
      loss(1).backward();
      int64_t all_reduces = 0;
      int64_t bytes = 0;
      for (const CommLogEntry& entry : log.entries()) {
        if (entry.kind == "all_reduce" && entry.bytes > 16) {
          ++all_reduces;
          bytes += entry.bytes;
        }
      }
      EXPECT_EQ(all_reduces, 4);
      // Of f64, halved by dp; 825 elements of the root do not halve evenly.
      EXPECT_EQ(bytes, 3 * kBlock + kRoot + 8);
      EXPECT_EQ(counts_of(log).reductions, keep == Keep::kShards ? 8 : 4);
      testing::expect_equal_gradients(net, plain);
    });
  }
}

}  // namespace
}  // namespace tessera
