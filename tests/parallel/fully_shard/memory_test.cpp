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
      EXPECT_EQ(
          sharded.report().peak_gathered_bytes,
          kRootF64 + (1 + prefetch) * kBlockF64);
    }
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
