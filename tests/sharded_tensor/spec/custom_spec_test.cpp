// Specs of a user's own: cases of the original's test_sharded_tensor.py, by
// their names there.
#include <sharded_tensor/tensor/family_test.h>

namespace tessera::sharded_tensor {
namespace {

using namespace tessera::testing;

using Ints = std::vector<int64_t>;

// A square grid with `side` cells a side, rank i on cell i.
class SquareSpec final : public ShardingSpec {
 public:
  explicit SquareSpec(int64_t side) : side_(side) {}
  ShardedTensorMetadata build_metadata(
      const Ints& sizes, const TensorProperties& properties) const override {
    ShardedTensorMetadata metadata{{}, sizes, properties};
    const int64_t n = sizes[0] / side_;
    for (int64_t i = 0; i < side_ * side_; ++i) {
      metadata.shards_metadata.push_back(
          box_of({i / side_ * n, i % side_ * n}, {n, n}, i));
    }
    return metadata;
  }
  ShardingSpecPtr clone() const override {
    return std::make_shared<SquareSpec>(*this);
  }
  bool equals(const ShardingSpec& other) const override {
    const auto* same = dynamic_cast<const SquareSpec*>(&other);
    return same != nullptr && same->side_ == side_;
  }
  std::string name() const override { return "SquareSpec"; }

 private:
  int64_t side_;
};

// A spec whose shard() is its own.
class RefusingSpec final : public ShardingSpec {
 public:
  ShardedTensorMetadata build_metadata(
      const Ints& sizes, const TensorProperties& properties) const override {
    return chunks(0, {0, 1, 2, 3}).build_metadata(sizes, properties);
  }
  ShardedTensor shard(
      const at::Tensor&, int64_t, const ProcessGroup&) const override {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "this spec cuts nothing");
  }
  ShardingSpecPtr clone() const override {
    return std::make_shared<RefusingSpec>(*this);
  }
  std::string name() const override { return "RefusingSpec"; }
};

TEST(TestCustomShardingSpec, test_custom_sharding_spec_tensor_ctor) {
  run_ranks(4, [] {
    const auto t = ones(SquareSpec(2), {6, 6});
    ASSERT_EQ(t.local_shards().size(), 1);
    EXPECT_TRUE(shards_are(t, at::ones({6, 6}, f32())));
    EXPECT_EQ(
        t.local_shards()[0].metadata.shard_offsets,
        (Ints{rank() / 2 * 3, rank() % 2 * 3}));
    EXPECT_TRUE(t.sharding_spec() == SquareSpec(2));
  });
}

TEST(TestCustomShardingSpec, test_custom_sharding_spec_shard_tensor) {
  run_ranks(4, [] {
    EXPECT_THROWN(
        c10::NotImplementedError, "this spec cuts nothing",
        shard_tensor(at::ones({4, 4}, f32()), RefusingSpec()));
    // The base's shard() serves a user's spec.
    const at::Tensor whole = counting({6, 6});
    EXPECT_TRUE(shards_are(shard_tensor(whole, SquareSpec(2), 2), whole));
  });
}

}  // namespace
}  // namespace tessera::sharded_tensor
