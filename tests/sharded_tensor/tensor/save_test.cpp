// A rank's part of a tensor as bytes, and back in the same place.
#include <random>

#include <sharded_tensor/tensor/family_test.h>

namespace tessera::sharded_tensor {
namespace {

using namespace tessera::testing;
using Ints = std::vector<int64_t>;

std::vector<ShardingSpecPtr> some_specs() {
  return {
      chunks(0, {0, 1, 2, 3}).clone(), chunks(-1, {3, 2, 1, 0}).clone(),
      chunks(0, {0, 1, 0, 1, 2}).clone(), grid(5, {0, 1, 2, 3}).clone(),
      EnumerableShardingSpec(
          {box_of({0, 0}, {10, 3}, 2), box_of({0, 3}, {4, 7}, 2),
           box_of({4, 3}, {6, 7}, 0), box_of({4, 3}, {0, 7}, 1)})
          .clone()};
}

TEST(Save, EveryKindSurvives) {
  run_ranks(4, [] {
    for (const auto& spec : some_specs()) {
      for (const auto dtype :
           {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong,
            at::kInt, at::kShort, at::kChar, at::kByte, at::kBool,
            at::kComplexFloat, at::kComplexDouble}) {
        const at::Tensor whole = counting({10, 10}).to(dtype);
        const bool grad = c10::isFloatingType(dtype);
        const auto t =
            shard_tensor(whole.clone().set_requires_grad(grad), *spec);
        const auto back = restore(save(t));
        EXPECT_EQ(back.metadata(), t.metadata());
        EXPECT_TRUE(back.sharding_spec() == t.sharding_spec());
        EXPECT_EQ(back.requires_grad(), grad);
        EXPECT_TRUE(shards_are(back, whole));
        EXPECT_NE(back.hash(), t.hash());
        EXPECT_TRUE(same(whole_value(back), whole));
      }
    }
  });
}

TEST(Save, AGroupIsThatOfTheGuard) {
  run_ranks(4, [] {
    if (rank() < 2) {
      return;
    }
    const ProcessGroup group({2, 3});
    const at::Tensor whole = counting({9, 3});
    const auto t = shard_tensor(whole, chunks(0, {3, 2, 3, 2}), 0, group);
    const std::string bytes = save(t);
    const WithProcessGroup scope(group);
    EXPECT_EQ(current_process_group(), group);
    const auto back = restore(bytes);
    EXPECT_EQ(back.process_group(), group);
    EXPECT_EQ(back.local_shards().size(), 2);
    EXPECT_TRUE(same(whole_value(back), whole));
    EXPECT_ERROR("in effect already", WithProcessGroup(ProcessGroup({2, 3})));
  });
}

// A user's spec without an encoding.
class EveryRow final : public ShardingSpec {
 public:
  ShardedTensorMetadata build_metadata(
      const Ints& sizes, const TensorProperties& properties) const override {
    ShardedTensorMetadata metadata{{}, sizes, properties};
    for (int64_t i = 0; i < sizes[0]; ++i) {
      metadata.shards_metadata.push_back(
          box_of({i, 0}, {1, sizes[1]}, i % world_size()));
    }
    return metadata;
  }
  ShardingSpecPtr clone() const override {
    return std::make_shared<EveryRow>(*this);
  }
  std::string name() const override { return "EveryRow"; }
};

TEST(DefectD25, ASpecWithoutAnEncodingIsSavedAsItsShards) {
  run_ranks(4, [] {
    const at::Tensor whole = counting({6, 3});
    const auto t = shard_tensor(whole, EveryRow());
    const auto back = restore(save(t));
    EXPECT_EQ(back.sharding_spec().name(), "EnumerableShardingSpec");
    EXPECT_EQ(back.metadata(), t.metadata());
    EXPECT_TRUE(shards_are(back, whole));
  });
}

TEST(Save, RemoteAccessIsSetUpAgain) {
  run_ranks(2, [] {
    const auto back =
        restore(save(ones(chunks(0, {0, 1}), {4}, {.init_remote = true})));
    EXPECT_EQ(back.remote_shards().at(1 - rank())[0].fetch().numel(), 2);
    init().communicator().barrier();
  });
}

TEST(TestShardedTensorChunked, test_load_state_dict_errors) {
  std::vector<std::string> bytes(4);
  run_ranks(4, [&] {
    bytes[static_cast<size_t>(rank())] =
        save(ones(chunks(0, {0, 1, 2, 3}), {8, 2}));
  });
  run_ranks(4, [&] {
    EXPECT_THROWN(
        c10::Error, "group rank",
        restore(bytes[static_cast<size_t>((rank() + 1) % 4)]));
    if (rank() < 2) {
      const WithProcessGroup scope(ProcessGroup({0, 1}));
      EXPECT_THROWN(
          c10::Error, "a group of size",
          restore(bytes[static_cast<size_t>(rank())]));
    }
    const WithProcessGroup scope(ProcessGroup({3, 2, 1, 0}));
    EXPECT_THROWN(
        c10::Error, "group rank", restore(bytes[static_cast<size_t>(rank())]));
  });
  // The same place in a group of other ranks.
  std::vector<std::string> halves(4);
  run_ranks(4, [&] {
    if (rank() < 2) {
      const WithProcessGroup scope(ProcessGroup({0, 1}));
      halves[static_cast<size_t>(rank()) + 2] =
          save(ones(chunks(0, {0, 1}), {8, 2}));
    }
    init().communicator().barrier();
    if (rank() >= 2) {
      const WithProcessGroup scope(ProcessGroup({2, 3}));
      EXPECT_THROWN(
          c10::Error, "global rank",
          restore(halves[static_cast<size_t>(rank())]));
    }
  });
  run_ranks(5, [&] {
    if (rank() < 4) {
      const WithProcessGroup scope(ProcessGroup({0, 1, 2, 3}));
      EXPECT_THROWN(
          c10::Error, "a world of size",
          restore(bytes[static_cast<size_t>(rank())]));
    }
  });
}

TEST(Save, DamagedBytesAreAnErrorEachTime) {
  run_ranks(1, [] {
    const std::string good =
        save(shard_tensor(counting({4, 3}), chunks(0, {0, 0})));
    const uint32_t seed = 4242;
    std::mt19937 random(seed);
    const auto pick = [&](size_t n) { return random() % n; };
    for (int i = 0; i < 20000; ++i) {
      std::string bad = good;
      switch (pick(4)) {
        case 0:
          bad[pick(bad.size())] ^= static_cast<char>(1 << pick(8));
          break;
        case 1:
          bad.resize(pick(bad.size()));
          break;
        case 2:
          bad.insert(pick(bad.size()), 1 + pick(9), static_cast<char>(i));
          break;
        default:
          bad.erase(pick(bad.size() - 1), 1 + pick(9));
      }
      ASSERT_THROW(static_cast<void>(restore(bad)), c10::ValueError)
          << "seed " << seed << ", case " << i;
    }
  });
}

}  // namespace
}  // namespace tessera::sharded_tensor
