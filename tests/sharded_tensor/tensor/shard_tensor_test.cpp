// Tensors cut into shards and gathered again: cases of the original's
// test_sharded_tensor.py, by their names there.
#include <sharded_tensor/tensor/family_test.h>

namespace tessera::sharded_tensor {
namespace {

using namespace tessera::testing;

using Ints = std::vector<int64_t>;

TEST(TestShardTensor, test_shard_tensor) {
  run_ranks(4, [] {
    const at::Tensor whole = counting({12, 12});
    const auto t = shard_tensor(whole, chunks(0, {0, 1, 2, 3}));
    EXPECT_EQ(t.local_tensor().sizes(), (Ints{3, 12}));
    EXPECT_TRUE(same(t.local_tensor(), whole.narrow(0, 3 * rank(), 3)));
  });
}

TEST(TestShardTensor, test_shard_tensor_with_empty_shard) {
  run_ranks(4, [] {
    const at::Tensor whole = counting({9, 12});
    const auto t = shard_tensor(whole, chunks(0, {0, 1, 2, 3}));
    EXPECT_EQ(t.local_tensor().sizes(), (Ints{rank() == 3 ? 0 : 3, 12}));
    EXPECT_TRUE(shards_are(t, whole));
    EXPECT_EQ(t.metadata().shards_metadata.size(), 4);
    EXPECT_EQ(offsets_of(t, 0), (Ints{0, 3, 6, 9}));
  });
}

TEST(TestShardTensor, test_shard_tensor_errors) {
  run_ranks(4, [] {
    const auto spec = chunks(0, {0, 1, 2, 3});
    const at::Tensor whole = counting({12, 12});
    EXPECT_THROWN(
        c10::ValueError, "same src_rank",
        shard_tensor(whole, spec, rank() == 2 ? 1 : 0));
    EXPECT_THROWN(
        c10::ValueError, "contiguous",
        shard_tensor(rank() == 1 ? whole.t() : whole, spec));
    EXPECT_THROWN(
        c10::ValueError, "same spec",
        shard_tensor(whole, chunks(rank() == 3 ? 1 : 0, {0, 1, 2, 3})));
    EXPECT_THROWN(
        c10::ValueError, "src_rank must be a rank of the group",
        shard_tensor(whole, spec, 4));
    EXPECT_THROWN(
        c10::ValueError, "size and dtype",
        shard_tensor(rank() == 0 ? counting({8, 12}) : whole, spec));
    // An enumerable spec cuts too: D2.
    EXPECT_TRUE(shards_are(shard_tensor(whole, grid(6, {3, 2, 1, 0})), whole));
    // The group is whole after every error.
    EXPECT_TRUE(shards_are(shard_tensor(whole, spec, 3), whole));
  });
}

TEST(TestShardedTensorEnumerable, test_uneven_shards) {
  run_ranks(4, [] {
    const EnumerableShardingSpec spec(
        {box_of({0, 0}, {2, 4}, 0), box_of({0, 4}, {4, 2}, 1),
         box_of({2, 0}, {4, 4}, 2), box_of({4, 4}, {2, 2}, 3)});
    const at::Tensor whole = counting({6, 6});
    const auto t = shard_tensor(whole, spec, 3);
    EXPECT_TRUE(shards_are(t, whole));
    EXPECT_TRUE(same(whole_value(t), whole));
  });
}

// Gathers on every rank in turn, into an output that only it has.
void check_gather(const ShardingSpec& spec, const Ints& sizes) {
  const at::Tensor whole = counting(sizes);
  const auto t = shard_tensor(whole, spec);
  EXPECT_TRUE(shards_are(t, whole));
  for (int64_t dst = 0; dst < world_size(); ++dst) {
    at::Tensor out;
    if (rank() == dst) {
      out = at::full(sizes, -1.0, f64());
    }
    t.gather(dst, out);
    if (rank() == dst) {
      EXPECT_TRUE(same(out, whole));
    }
  }
}

TEST(TestShardedTensorChunked, test_gather_even) {
  run_ranks(4, [] { check_gather(chunks(0, {0, 1, 2, 3}), {8, 20}); });
}
TEST(TestShardedTensorChunked, test_gather_uneven) {
  run_ranks(4, [] { check_gather(chunks(0, {0, 0, 1, 1, 2}), {10, 20}); });
}
TEST(TestShardedTensorEnumerable, test_gather_even) {
  run_ranks(4, [] { check_gather(grid(5, {0, 1, 2, 3}), {10, 10}); });
}
TEST(TestShardedTensorEnumerable, test_gather_uneven) {
  run_ranks(4, [] { check_gather(grid(5, {0, 0, 1, 3}), {10, 10}); });
}

}  // namespace
}  // namespace tessera::sharded_tensor
