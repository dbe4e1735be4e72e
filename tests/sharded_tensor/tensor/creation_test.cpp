// Sharded tensors from nothing: cases of the original's test_sharded_tensor.py,
// by their names there.
#include <sharded_tensor/tensor/family_test.h>

namespace tessera::sharded_tensor {
namespace {

using namespace tessera::testing;

using Ints = std::vector<int64_t>;

TEST(TestCreateTensorFromParams, test_empty) {
  run_ranks(1, [] {
    for (const auto dtype : {at::kFloat, at::kDouble, at::kLong, at::kBool}) {
      for (const bool grad : {false, true}) {
        if (grad && !c10::isFloatingType(dtype)) {
          continue;
        }
        const auto t = empty(
            chunks(0, {0}), {5, 4}, {.dtype = dtype, .requires_grad = grad});
        const at::Tensor local = t.local_tensor();
        EXPECT_EQ(local.scalar_type(), dtype);
        EXPECT_EQ(local.requires_grad(), grad);
        EXPECT_EQ(local.device().str(), device_text());
        EXPECT_EQ(local.layout(), at::kStrided);
        EXPECT_EQ(local.sizes(), (Ints{5, 4}));
        EXPECT_TRUE(local.is_leaf());
      }
    }
  });
}

TEST(TestLocalTensor, test_local_tensor) {
  run_ranks(4, [] {
    const auto t = rand(chunks(0, {0, 1, 2, 3}), {24, 12});
    EXPECT_EQ(t.local_tensor().sizes(), (Ints{6, 12}));
    EXPECT_TRUE(t.local_tensor().is_same(t.local_shards()[0].tensor));
  });
}

TEST(TestLocalTensor, test_local_tensor_error) {
  run_ranks(4, [] {
    const auto t = rand(chunks(0, {0, 0, 1, 1}), {24, 12});
    EXPECT_THROWN(
        c10::NotImplementedError, "exactly one local shard", t.local_tensor());
  });
}

void check_metadata(const ShardingSpec& spec, const Ints& sizes) {
  const auto t =
      zeros(spec, sizes, {.dtype = at::kDouble, .requires_grad = true});
  EXPECT_EQ(t.size(), sizes);
  EXPECT_EQ(t.dtype(), at::kDouble);
  EXPECT_EQ(t.layout(), at::kStrided);
  EXPECT_TRUE(t.requires_grad());
  EXPECT_TRUE(t.is_contiguous());
  EXPECT_TRUE(t.is_floating_point());
  EXPECT_FALSE(t.is_pinned());
  EXPECT_EQ(t.numel(), c10::multiply_integers(sizes));
  for (const Shard& shard : t.local_shards()) {
    EXPECT_TRUE(shard.tensor.requires_grad());
    EXPECT_TRUE(shard.tensor.is_leaf());
  }
  const TensorProperties& properties = t.metadata().tensor_properties;
  EXPECT_EQ(properties.dtype, at::kDouble);
  EXPECT_EQ(properties.memory_format, c10::MemoryFormat::Contiguous);
  EXPECT_EQ(empty(spec, sizes).dtype(), at::kFloat);
  EXPECT_NE(to_string(t).find("ShardedTensor("), std::string::npos);
  const ShardedTensor handle = t;
  EXPECT_EQ(handle.hash(), t.hash());
}

TEST(TestShardedTensorChunked, test_sharded_tensor_metadata) {
  run_ranks(4, [] { check_metadata(chunks(0, {0, 1, 2, 3}), {10, 20}); });
}

TEST(TestShardedTensorEnumerable, test_sharded_tensor_metadata) {
  run_ranks(4, [] { check_metadata(grid(5, {0, 1, 2, 3}), {10, 10}); });
}

TEST(TestShardedTensorChunked, test_sharded_tensor_sizes) {
  run_ranks(4, [] {
    const auto spec = chunks(0, {0, 1, 2, 3});
    const auto t = empty(spec, {10, 20});
    EXPECT_EQ(t.size(), (Ints{10, 20}));
    EXPECT_EQ(t.sizes(), (Ints{10, 20}));
    EXPECT_EQ(empty(spec, {10}).size(), (Ints{10}));
    EXPECT_EQ(t.size(0), 10);
    EXPECT_EQ(t.size(-1), 20);
    EXPECT_EQ(t.dim(), 2);
    EXPECT_EQ(t.ndim(), 2);
    EXPECT_THROWN(c10::IndexError, "out of range", t.size(2));
    EXPECT_THROWN(c10::IndexError, "out of range", t.size(-3));
  });
}

TEST(TestShardedTensorChunked, test_create_sharded_tensor_with_ones) {
  run_ranks(4, [] {
    const auto t = ones(chunks(0, {0, 1, 2, 3}), {10, 20});
    EXPECT_TRUE(shards_are(t, at::ones({10, 20}, f32())));
    EXPECT_EQ(t.local_tensor().device().str(), device_text());
  });
}

TEST(TestShardedTensorEnumerable, test_create_sharded_tensor_with_ones) {
  run_ranks(4, [] {
    EXPECT_TRUE(shards_are(
        ones(grid(5, {0, 1, 2, 3}), {10, 10}), at::ones({10, 10}, f32())));
  });
}

TEST(TestShardedTensorChunked, test_create_sharded_tensor_with_zeros) {
  run_ranks(4, [] {
    const auto t =
        zeros(chunks(0, {0, 1, 2, 3}), {10, 20}, {.dtype = at::kInt});
    EXPECT_TRUE(shards_are(t, at::zeros({10, 20}, i64()).to(at::kInt)));
  });
}

TEST(TestShardedTensorChunked, test_create_sharded_tensor_with_rand) {
  at::Tensor uniform, normal;
  run_ranks(1, [&] {
    manual_seed(7);
    uniform = rand(chunks(0, {0}), {10, 20}).local_tensor();
    normal = randn(chunks(0, {0}), {10, 20}).local_tensor();
  });
  run_ranks(4, [&] {
    for (const bool as_grid : {false, true}) {
      manual_seed(7);
      const ShardingSpecPtr spec =
          as_grid ? EnumerableShardingSpec({box_of({0, 0}, {4, 20}, 3),
                                            box_of({4, 0}, {6, 7}, 0),
                                            box_of({4, 7}, {6, 13}, 3)})
                        .clone()
                  : chunks(0, {2, 1, 0, 3}).clone();
      EXPECT_TRUE(shards_are(rand(*spec, {10, 20}), uniform));
      EXPECT_TRUE(shards_are(randn(*spec, {10, 20}), normal));
    }
    // The same numbers as a tensor with placements.
    manual_seed(7);
    EXPECT_TRUE(same(
        tessera::rand({10, 20}, mesh_of({4}), {tessera::Shard(0)}, f32()),
        uniform));
    EXPECT_ERROR(
        "floating point", rand(chunks(0, {0}), {4}, {.dtype = at::kLong}));
  });
}

TEST(TestShardedTensorChunked, test_create_sharded_tensor_with_full) {
  run_ranks(4, [] {
    const auto t =
        full(chunks(0, {0, 1, 2, 3}), {10, 20}, 7, {.dtype = at::kInt});
    EXPECT_TRUE(shards_are(t, at::full({10, 20}, 7, i64()).to(at::kInt)));
    EXPECT_EQ(full(chunks(0, {0, 1, 2, 3}), {10, 20}, 7).dtype(), at::kFloat);
  });
}

TEST(TestShardedTensorChunked, test_sharding_columns) {
  run_ranks(4, [] {
    for (const int64_t dim : {1, -1}) {
      const auto t = empty(chunks(dim, {0, 1, 2, 3}), {10, 32});
      EXPECT_EQ(t.local_tensor().sizes(), (Ints{10, 8}));
      EXPECT_EQ(offsets_of(t, 1), (Ints{0, 8, 16, 24}));
    }
  });
}

TEST(TestShardedTensorChunked, test_invalid_sharding) {
  run_ranks(4, [] {
    EXPECT_THROWN(
        c10::NotImplementedError, "name",
        ChunkShardingSpec("H", places({0, 1})));
    for (const int64_t dim : {2, 3, 4, -3, -4, -5}) {
      EXPECT_THROWN(
          c10::ValueError, "dim", empty(chunks(dim, {0, 1}), {10, 20}));
    }
    EXPECT_THROWN(
        c10::ValueError, "not a member", empty(chunks(0, {5, 6}), {10, 20}));
    EXPECT_THROWN(
        c10::ValueError, "not a member",
        empty(chunks(0, {0, 3}), {10, 20}, {.process_group = {1, 2, 3}}));
    const auto spec = chunks(0, {0, 1, 2, 3});
    EXPECT_THROWN(
        c10::ValueError, "strided", empty(spec, {4}, {.layout = at::kSparse}));
    EXPECT_THROWN(
        c10::ValueError, "contiguous",
        empty(
            spec, {4, 4, 4, 4},
            {.memory_format = c10::MemoryFormat::ChannelsLast}));
    const ChunkShardingSpec named(0, {"worker0/cpu", "worker1/cpu"});
    EXPECT_THROWN(c10::Error, "WorkerNames", empty(named, {4}));
    const WorkerNames names({{"alice", 0}, {"bob", 1}});
    EXPECT_THROWN(c10::ValueError, "does not have", empty(named, {4}));
    EXPECT_THROWN(
        c10::Error, "without init_remote", empty(spec, {4}).remote_shards());
    EXPECT_THROWN(c10::ValueError, "negative", empty(spec, {4, -1}));
  });
}

TEST(TestShardedTensorChunked, test_invalid_pg_rpc_ranks) {
  run_ranks(4, [] {
    EXPECT_THROWN(
        c10::ValueError, "rank of the world", WorkerNames({{"w", 4}}));
    EXPECT_THROWN(
        c10::ValueError, "one name", WorkerNames({{"a", 0}, {"b", 0}}));
    const WorkerNames names({{"a", 0}});
    EXPECT_THROWN(c10::Error, "already", WorkerNames({{"b", 0}}));
  });
}

TEST(TestShardedTensorChunked, test_insufficient_sharding_dims) {
  run_ranks(4, [] {
    const auto t = empty(chunks(0, {0, 1, 2, 3}), {2, 20});
    EXPECT_EQ(sizes_of(t, 0), (Ints{1, 1, 0, 0}));
    EXPECT_EQ(offsets_of(t, 0), (Ints{0, 1, 2, 2}));  // D1: inside the tensor
    ASSERT_EQ(t.local_shards().size(), 1);
    EXPECT_EQ(t.local_tensor().sizes(), (Ints{rank() < 2 ? 1 : 0, 20}));
  });
}

}  // namespace
}  // namespace tessera::sharded_tensor
