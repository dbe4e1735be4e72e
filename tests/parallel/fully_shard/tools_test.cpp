// LossScaler, Ema and deferred initialisation with fully_shard.
#include <harness/counting_allocator.h>

#include <cmath>

#include "block_net.h"

namespace tessera {
namespace {

using testing::BlockNet;
using testing::CountingAllocator;
using testing::mesh_of;
using testing::net_indices;
using testing::net_loss_on;
using testing::plain_net_loss;
using testing::same;

const FullyShardOptions kBlocks = {.groups = {"blocks.*"}};

TEST(FullyShardTools, ALossScalerStepsAndSkipsOnAllRanks) {
  BlockNet plain;
  torch::optim::SGD plain_optimizer(plain.parameters(), 0.1);
  plain_net_loss(plain).backward();
  plain_optimizer.step();
  run_ranks(3, [&] {
    const auto mesh = mesh_of({3}, {"dp"});
    BlockNet net;
    const auto sharded = fully_shard(net, mesh, kBlocks);
    torch::optim::SGD optimizer(net.parameters(), 0.1);
    LossScaler scaler({.initial = 1024});
    scaler.scale(net_loss_on(net, mesh)).backward();
    EXPECT_TRUE(scaler.step(optimizer));
    scaler.update();
    for (size_t i = 0; i < net.parameters().size(); ++i) {
      EXPECT_TRUE(
          testing::close(net.parameters()[i], plain.parameters()[i], 1e-12));
    }
    const at::Tensor before = testing::plain(net.block(1).up->weight).clone();
    optimizer.zero_grad();
    scaler.scale(net_loss_on(net, mesh)).backward();
    if (rank() == 2) {
      to_local(net.block(1).up->weight.grad()).view(-1)[0].fill_(INFINITY);
    }
    EXPECT_FALSE(scaler.step(optimizer));
    scaler.update();
    EXPECT_EQ(scaler.state().scale, 512);
    EXPECT_TRUE(same(net.block(1).up->weight, before));
  });
}

constexpr testing::GptSizes kSizes = {
    .vocabulary = 512, .length = 32, .width = 64, .heads = 4, .hidden = 256};

// Equal bits to a model that is made whole and then cut; nothing is sent, and
// nothing but the shards is held.
TEST(FullyShardTools, ADeferredModelHasTheBitsOfOneThatIsCut) {
  for (const int ranks : {1, 2, 4}) {
    SCOPED_TRACE(ranks);
    const testing::WithCounts counts;
    run_ranks(ranks, [&] {
      const auto mesh = mesh_of({ranks}, {"dp"});
      const auto make = [&] {
        manual_seed(11);
        return testing::Gpt(kSizes);
      };
      testing::Gpt whole = [&] {
        const ReplicatedRandom equal;
        return make();
      }();
      auto& count = CountingAllocator::of_rank();
      const int64_t before = count.live;
      count.peak = before;
      testing::Gpt model = [&] {
        const DeferredInit later;
        return make();
      }();
      const CommLog log;
      const auto sharded = fully_shard(*model, mesh, kBlocks);
      EXPECT_EQ(log.count(), 0) << log;
      int64_t shards = 0;
      for (const at::Tensor& p : model->parameters()) {
        EXPECT_FALSE(is_deferred(p));
        shards += static_cast<int64_t>(to_local(p.detach()).nbytes());
      }
      if (testing::device() == at::kCPU) {
        EXPECT_LE(count.peak - before, shards + (16 << 10));
      }
      const auto cut = fully_shard(*whole, mesh, kBlocks);
      for (const auto& p : whole->named_parameters()) {
        const at::Tensor mine = model->named_parameters()[p.key()];
        EXPECT_EQ(placements(mine), placements(p.value()));
        EXPECT_TRUE(
            at::equal(to_local(mine.detach()), to_local(p.value().detach())))
            << p.key();
      }
    });
  }
}

}  // namespace
}  // namespace tessera
