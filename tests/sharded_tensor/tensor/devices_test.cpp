// Moves between devices and dtypes. Without a GPU the meta device stands for
// one: what is checked of it are placements, not values.
#include <sharded_tensor/tensor/devices.h>
#include <sharded_tensor/tensor/family_test.h>

namespace tessera::sharded_tensor {
namespace {

using namespace tessera::testing;
using Ints = std::vector<int64_t>;

c10::Device other_device() {
  return device() == at::kCPU ? c10::Device("meta") : c10::Device("cuda:0");
}

void expect_on(const ShardedTensor& t, const std::string& device) {
  for (const ShardMetadata& shard : t.metadata().shards_metadata) {
    EXPECT_EQ(shard.placement->device().str(), device);
  }
  for (const Shard& shard : t.local_shards()) {
    EXPECT_EQ(shard.tensor.device().str(), device);
  }
}

ChunkShardingSpec on_cpu(int64_t dim) {
  return ChunkShardingSpec(
      dim, {"rank:0/cpu", "rank:1/cpu", "rank:2/cpu", "rank:3/cpu"});
}

TEST(TestShardedTensorEnumerable, test_sharded_tensor_to_cpu) {
  run_ranks(4, [] {
    const auto t = ones(on_cpu(-1), {10, 20});
    EXPECT_EQ(t.cpu().hash(), t.hash());
    const auto away = t.to(other_device());
    expect_on(away, other_device().str());
    EXPECT_EQ(away.sharding_spec().name(), "ChunkShardingSpec");
    EXPECT_NE(away.hash(), t.hash());
    if (device() == at::kCPU) {
      return;  // nothing comes back from the meta device
    }
    const auto back = away.cpu();
    expect_on(back, "cpu");
    EXPECT_TRUE(back.sharding_spec() == on_cpu(-1));  // the dim as written
    EXPECT_TRUE(same(back.local_tensor(), t.local_tensor()));
    // Devices of two kinds in one tensor.
    std::vector<ShardMetadata> shards;
    for (int64_t r = 0; r < 4; ++r) {
      shards.emplace_back(
          Ints{r, 0}, Ints{1, 3},
          RemoteDevice(r, r % 2 == 0 ? c10::Device("cpu") : other_device()));
    }
    const auto mixed = ones(EnumerableShardingSpec(shards), {4, 3});
    EXPECT_FALSE(has_mesh(mixed));
    expect_on(mixed.cpu(), "cpu");
    EXPECT_TRUE(has_mesh(mixed.cpu()));
  });
}

TEST(TestShardedTensorEnumerable, test_sharded_tensor_to_cuda) {
  if (device() != at::kCUDA) {
    GTEST_SKIP() << "needs a GPU";
  }
  run_ranks(4, [] {
    const auto t = ones(on_cpu(0), {10, 20});
    const auto moved = t.cuda();
    expect_on(moved, "cuda:0");
    EXPECT_EQ(moved.cuda().hash(), moved.hash());
    EXPECT_TRUE(same(whole_value(moved), at::ones({10, 20}, f32())));
    expect_on(moved.cpu(), "cpu");
  });
}

TEST(TestShardedTensorEnumerable, test_sharded_tensor_to_test) {
  run_ranks(4, [] {
    const auto t = ones(on_cpu(0), {10, 20});
    EXPECT_EQ(t.to(at::kFloat).hash(), t.hash());
    EXPECT_EQ(t.to(c10::Device("cpu")).hash(), t.hash());
    EXPECT_EQ(t.to(c10::Device("cpu"), at::kFloat).hash(), t.hash());
    EXPECT_NE(t.to(at::kFloat, /*copy=*/true).hash(), t.hash());
    EXPECT_FALSE(
        t.to(at::kFloat, true).local_tensor().is_alias_of(t.local_tensor()));
    const auto f64 = t.to(at::kDouble);
    EXPECT_EQ(f64.dtype(), at::kDouble);
    EXPECT_EQ(f64.local_tensor().scalar_type(), at::kDouble);
    EXPECT_TRUE(f64.sharding_spec() == t.sharding_spec());
    const auto like =
        t.to(at::empty({1}, at::TensorOptions(at::kLong).device(at::kMeta)));
    EXPECT_EQ(like.dtype(), at::kLong);
    expect_on(like, "meta");
    const auto both = t.to(other_device(), at::kHalf);
    EXPECT_EQ(both.dtype(), at::kHalf);
    expect_on(both, other_device().str());
    // Gradients reach the shards that were converted.
    const auto leaf = ones(on_cpu(0), {8, 2}, {.requires_grad = true});
    const auto converted = leaf.to(at::kDouble);
    EXPECT_TRUE(converted.requires_grad());
    (converted.local_tensor() * 3).sum().backward();
    ASSERT_TRUE(leaf.grad());
    EXPECT_TRUE(same(
        leaf.grad()->local_tensor().cpu(), at::full({2, 2}, 3.0, at::kFloat)));
  });
}

TEST(TestShardedTensorEnumerable, test_sharded_tensor_device) {
  run_ranks(4, [] {
    const auto t =
        ones(ChunkShardingSpec(0, {"rank:0/cpu", "rank:1/cpu"}), {10, 20});
    EXPECT_EQ(t.device().str(), "cpu");  // also on ranks without shards
    EXPECT_EQ(t.to(other_device()).device().str(), other_device().str());
  });
}

TEST(DefectD11, EveryRankKnowsEveryRanksDevice) {
  run_ranks(4, [] {
    const ProcessGroup group({2, 0, 3});
    if (!group.contains(rank())) {
      return;
    }
    const c10::Device mine(at::kCUDA, static_cast<int8_t>(7 - rank()));
    const auto devices = detail::devices_of_ranks(mine, group, "to");
    ASSERT_EQ(devices.size(), 3);
    for (const auto& [r, of_rank] : devices) {
      EXPECT_EQ(of_rank, c10::Device(at::kCUDA, static_cast<int8_t>(7 - r)));
    }
    // Ranks that mean devices of different kinds hear of it.
    EXPECT_THROWN(
        c10::ValueError, "same device type",
        detail::devices_of_ranks(
            c10::Device(rank() == 0 ? at::kXPU : at::kCUDA, 0), group, "to"));
  });
}

}  // namespace
}  // namespace tessera::sharded_tensor
