// When a model ends, and who ends it.
#include <harness/counting_allocator.h>
#include <harness/ranks.h>

#include <array>
#include <latch>
#include <memory>
#include <optional>
#include <vector>

#include "block_net.h"

namespace tessera {
namespace {

using testing::BlockNet;
using testing::CountingAllocator;
using testing::mesh_of;
using testing::net_loss_on;
using testing::WithCounts;

// The memory of a parameter's shard; a shard without elements has none.
class ShardMemory {
 public:
  explicit ShardMemory(const at::Tensor& parameter)
      : memory_(to_local(parameter.detach()).storage().getWeakStorageImpl()) {}
  bool is_gone() const { return memory_.expired(); }

 private:
  c10::weak_intrusive_ptr<c10::StorageImpl> memory_;
};

// Rank 1 drops a module that it gathers, which rank 0 has not begun to. Was
// rank 0 to end that model, it would wait for itself.
TEST(FullyShardLifetime, ARankEndsItsOwnModelsOnly) {
  std::latch dropped(1);
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2}, {"dp"});
    auto net = std::make_unique<BlockNet>();
    auto sharded = fully_shard(*net, mesh);
    const ShardMemory memory(net->head->weight);
    if (rank() == 1) {
      sharded.unshard();
      net.reset();
      dropped.count_down();
    } else if (!harness::on_processes()) {
      dropped.wait();
    }
    BlockNet next;
    const auto of_next = fully_shard(next, mesh);
    if (rank() == 0) {
      sharded.unshard();
      sharded.reshard();
    } else {
      EXPECT_TRUE(memory.is_gone());
    }
    net_loss_on(next, mesh).backward();
    EXPECT_EQ(of_next.report().gathered_bytes, 0);
  });
}

// Ranks that make and drop models at their own pace; for the thread sanitizer.
TEST(FullyShardLifetime, RanksMakeAndDropModelsSideBySide) {
  run_ranks(3, [] {
    const auto mesh = mesh_of({3}, {"dp"});
    for (int64_t i = 0; i < 4 + 4 * rank(); ++i) {
      const auto net = std::make_unique<BlockNet>();
      const auto sharded = fully_shard(*net, mesh, {.groups = {"blocks.*"}});
      EXPECT_EQ(sharded.report().groups.size(), 4);
    }
  });
}

// Tensors of a forward have a history that leads to the parameters.
TEST(FullyShardLifetime, AForwardWithoutBackwardKeepsNoModel) {
  run_ranks(2, [] {
    const auto mesh = mesh_of({2}, {"dp"});
    auto net = std::make_unique<BlockNet>();
    const auto sharded = fully_shard(*net, mesh, {.groups = {"blocks.*"}});
    const ShardMemory of_root(net->head->weight);
    const ShardMemory of_block(net->block(2).up->weight);
    net_loss_on(*net, mesh);
    net.reset();
    EXPECT_ERROR("is gone; keep it", sharded.report());
    EXPECT_TRUE(of_root.is_gone());
    EXPECT_TRUE(of_block.is_gone());
  });
}

TEST(FullyShardLifetime, RanksThatEndLeaveNoModel) {
  if (harness::on_processes()) {
    harness::skip_test("ranks that are processes do not end before");
  }
  const WithCounts counts;
  std::array<int64_t, 2> before = {};
  for (int run = 0; run < 3; ++run) {
    run_ranks(2, [&] {
      const auto mesh = mesh_of({2}, {"dp"});
      const int64_t live = CountingAllocator::of_rank().live;
      if (run > 0) {
        EXPECT_EQ(live, before[static_cast<size_t>(rank())]) << run;
      }
      before[static_cast<size_t>(rank())] = live;
      BlockNet net;
      const auto sharded = fully_shard(net, mesh, {.groups = {"blocks.*"}});
      net_loss_on(net, mesh).backward();
    });
  }
}

// What outlives its rank belongs to nobody, and the next rank ends it.
TEST(FullyShardLifetime, AModuleMayOutliveItsRank) {
  if (harness::on_processes()) {
    harness::skip_test("ranks that are processes do not end before");
  }
  std::vector<std::unique_ptr<BlockNet>> nets(2);
  std::array<std::optional<ShardMemory>, 2> memory;
  run_ranks(2, [&] {
    const auto mine = static_cast<size_t>(rank());
    nets[mine] = std::make_unique<BlockNet>();
    fully_shard(*nets[mine], mesh_of({2}, {"dp"}));
    memory[mine].emplace(nets[mine]->head->weight);
  });
  nets.clear();
  run_ranks(1, [&] {
    BlockNet net;
    fully_shard(net, mesh_of({1}, {"dp"}));
    EXPECT_TRUE(memory[0]->is_gone());
    EXPECT_TRUE(memory[1]->is_gone());
  });
}

}  // namespace
}  // namespace tessera
