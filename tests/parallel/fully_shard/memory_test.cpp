// The memory of gathered parameters, counted by the allocator.
#include <harness/counting_allocator.h>

#include "block_net.h"

namespace tessera {
namespace {

using testing::BlockNet;
using testing::CountingAllocator;
using testing::mesh_of;
using testing::net_loss;
using testing::net_loss_on;
using testing::WithCounts;

constexpr int64_t kBlockF64 = (16 * 64 + 64 + 64 * 16 + 16) * 8;
constexpr int64_t kRootF64 = (50 * 16 + 16 * 50 + 50) * 8;

TEST(FullyShardMemory, NothingGatheredOutlivesAStep) {
  const WithCounts counts;
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2}, {"dp"});
    BlockNet net;
    auto sharded = fully_shard(net, mesh, {.groups = {"blocks.*"}});
    auto& count = CountingAllocator::of_rank();
    int64_t after_first = 0;
    for (int step = 0; step < 4; ++step) {
      net_loss_on(net, mesh).backward();
      EXPECT_EQ(sharded.report().gathered_bytes, 0);
      net.zero_grad();
      if (step == 1) {
        after_first = count.live;
      }
    }
    EXPECT_LT(std::abs(count.live - after_first), 1024);
  });
}

// Parameters, gradients and the two states of Adam: 1/n each.
TEST(FullyShardMemory, ARankKeepsItsShareOfATrainingState) {
  for (const int n : {2, 3, 4}) {
    run_ranks(n, [&] {
      const auto mesh = mesh_of({n}, {"dp"});
      BlockNet net;
      const auto sharded = fully_shard(net, mesh, {.groups = {"blocks.*"}});
      torch::optim::AdamW optimizer(net.parameters(), 1e-2);
      net_loss_on(net, mesh).backward();
      optimizer.step();
      int64_t mine = 0;
      int64_t all = 0;
      const auto add = [&](const at::Tensor& t) {
        mine += to_local(t.detach()).numel();
        all += t.numel();
      };
      for (const at::Tensor& p : net.parameters()) {
        add(p);
        add(p.grad());
        const auto& state = static_cast<const torch::optim::AdamWParamState&>(
            *optimizer.state().at(p.unsafeGetTensorImpl()));
        add(state.exp_avg());
        add(state.exp_avg_sq());
      }
      EXPECT_LE(
          static_cast<double>(mine),
          (1.0 / n + 0.05) * static_cast<double>(all));
    });
  }
}

// With prefetch the root, the group in use and the one that comes next.
TEST(FullyShardMemory, PeakIsTheRootAndTwoGroups) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2}, {"dp"});
    for (const int64_t prefetch : {0, 1}) {
      BlockNet net;
      const auto sharded = fully_shard(
          net, mesh, {.groups = {"blocks.*"}, .prefetch = prefetch});
      for (int step = 0; step < 3; ++step) {
        net_loss_on(net, mesh).backward();
      }
      const int64_t arriving =
          testing::packs() && prefetch == 0 ? kBlockF64 / 2 : 0;
      EXPECT_EQ(
          sharded.report().peak_gathered_bytes,
          kRootF64 + (1 + prefetch) * kBlockF64 + arriving);
    }
  });
}

// Blocks of 1 MB of which no tensor is as large, so that the allocator sees
// all; two rows of a batch are nothing beside them.
constexpr testing::BlockNetSizes kWide{
    .width = 256, .hidden = 512, .blocks = 4};
constexpr int64_t kWideBlock = (2 * 256 * 512 + 512 + 256) * 4;
constexpr int64_t kWideRoot = (2 * 50 * 256 + 50) * 4;
constexpr int64_t kActivations = kWideBlock / 12;

struct Beyond {
  int64_t forward = 0;  // at the peak
  int64_t backward = 0;
  int64_t after_forward = 0;
  int64_t after_backward = 0;
};

// What a step takes beyond shards, and after its backward beyond gradients.
Beyond beyond_shards(const DeviceMesh& mesh, BlockNet& net, int64_t n) {
  auto& count = CountingAllocator::of_rank();
  const at::Tensor batch = distribute_tensor(
      testing::net_indices(0).narrow(0, 0, 2 * n), mesh, {Shard(0)});
  const Communicator all = init().communicator();
  all.barrier();
  const int64_t shards = count.live;
  const int64_t gradients = (4 * kWideBlock + kWideRoot) / n;
  Beyond beyond;
  for (int step = 0; step < 3; ++step) {  // orders are known from the second on
    net.zero_grad();
    all.barrier();
    count.peak = count.live.load();
    at::Tensor loss = net_loss(net.forward(batch));
    all.barrier();
    beyond.forward = count.peak - shards;
    beyond.after_forward = count.live - shards;
    count.peak = count.live.load();
    loss.backward();
    loss.reset();
    all.barrier();
    beyond.backward = count.peak - shards - gradients;
    beyond.after_backward = count.live - shards - gradients;
  }
  return beyond;
}

// Training 2, "To be shown" 3. U: gathered, D: gradients as autograd made
// them, R: on their way.
TEST(FullyShardMemory, PeaksAreThoseOfTheFormulas) {
  const WithCounts counts;
  for (const int64_t n : {2, 3, 4}) {
    run_ranks(static_cast<int>(n), [&] {
      const auto mesh = mesh_of({n}, {"dp"});
      BlockNet net(at::kFloat, kWide);
      const auto sharded = fully_shard(net, mesh, {.groups = {"blocks.*"}});
      const Beyond beyond = beyond_shards(mesh, net, n);
      const int64_t arriving =
          testing::packs() ? kWideBlock - kWideBlock / n : 0;
      const int64_t forward = kWideRoot + 2 * kWideBlock + arriving;
      const int64_t backward =
          kWideRoot + 2 * kWideBlock + 3 * kWideBlock + arriving;
      EXPECT_LE(beyond.forward, forward + kActivations);
      EXPECT_LE(beyond.backward, backward + kActivations);
      // The last group stays for the backward pass, and then nothing.
      EXPECT_LE(beyond.after_forward, kWideRoot + kWideBlock + kActivations);
      EXPECT_LE(beyond.after_backward, kActivations);
      const FullyShardReport report = sharded.report();
      EXPECT_EQ(report.gathered_bytes, 0);
      EXPECT_EQ(report.peak_gathered_bytes, kWideRoot + 2 * kWideBlock);
    });
  }
}

// Without prefetch the report counts what lies in a buffer beside a group that
// arrives.
TEST(FullyShardMemory, TheReportCountsWhatArrivesInABuffer) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2}, {"dp"});
    BlockNet net;
    const auto sharded = fully_shard(
        net, mesh,
        {.groups = {"blocks.*"}, .reshard_after_forward = true, .prefetch = 0});
    net_loss_on(net, mesh).backward();
    const int64_t arriving = testing::packs() ? kBlockF64 / 2 : 0;
    const int64_t both = testing::packs() ? (kRootF64 + 8) / 2 : 0;
    EXPECT_GE(
        sharded.report().peak_gathered_bytes, kRootF64 + kBlockF64 + arriving);
    EXPECT_LE(
        sharded.report().peak_gathered_bytes,
        kRootF64 + kBlockF64 + std::max(arriving, both));
  });
}

// The allocator agrees: what a forward holds beyond its activations.
TEST(FullyShardMemory, ForwardHoldsWhatTheReportSays) {
  const WithCounts counts;
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2}, {"dp"});
    BlockNet net;
    auto sharded = fully_shard(net, mesh, {.groups = {"blocks.*"}});
    const at::Tensor x =
        distribute_tensor(testing::net_indices(0), mesh, {Shard(0)});
    const torch::NoGradGuard no_grad;
    const at::Tensor kept = net.forward(x);  // learns the order
    sharded.reshard();
    auto& count = CountingAllocator::of_rank();
    const int64_t before = count.live;
    const at::Tensor y = net.forward(x);
    const int64_t held = count.live - before;
    EXPECT_EQ(sharded.report().gathered_bytes, kRootF64 + kBlockF64);
    EXPECT_NEAR(
        static_cast<double>(held), static_cast<double>(kRootF64 + kBlockF64),
        6000);
    sharded.reshard();
    EXPECT_LT(count.live - before, 6000);
  });
}

}  // namespace
}  // namespace tessera
