// The checklist's cases of specs, by their names there.
#include <tessera/sharded_tensor/sharding_spec.h>

#include <numeric>

#include <gtest/gtest.h>

#include "sharded_tensor/spec/expect_torch_error.h"
#include "sharded_tensor/spec/grid_spec.h"

namespace tessera::sharded_tensor {
namespace {

using Sizes = std::vector<int64_t>;

TEST(TestShardingSpec, test_device_placement) {
  EXPECT_EQ(DevicePlacementSpec("cuda:0").device.device().index(), 0);
  EXPECT_EQ(DevicePlacementSpec(c10::Device("cuda:0")).device, "cuda:0");
  EXPECT_EQ(DevicePlacementSpec("rank:0/cuda:0").device.rank(), 0);
  EXPECT_EQ(DevicePlacementSpec("rank:0/cpu"), DevicePlacementSpec("rank:0"));
  EXPECT_FALSE(DevicePlacementSpec("rank:0") == DevicePlacementSpec("rank:1"));
  EXPECT_VALUE_ERROR(DevicePlacementSpec("cuda:foo"), "an owner");
  EXPECT_VALUE_ERROR(DevicePlacementSpec("foo:0"), "an owner");
  EXPECT_VALUE_ERROR(DevicePlacementSpec("rank:foo"), "an owner");
  EXPECT_PLAIN_ERROR(DevicePlacementSpec("rank:0/cuda:foo"), "Invalid device");
  EXPECT_PLAIN_ERROR(DevicePlacementSpec("rank:0/cpu2"), "Invalid device");
}

TEST(TestShardingSpec, test_chunked_sharding_spec) {
  const ChunkShardingSpec mixed(
      0, {c10::Device("cuda:0"), c10::Device("cuda:1")});
  EXPECT_EQ(mixed.placements()[1], "cuda:1");
  EXPECT_EQ(ChunkShardingSpec(-1, {"cuda:0", "cuda:1"}).dim(), -1);
  EXPECT_NO_THROW(ChunkShardingSpec(0, {"rank:0/cuda:0", "rank:0/cuda:1"}));
  EXPECT_NO_THROW(ChunkShardingSpec(0, {"rank:0", "cuda:1"}));
  EXPECT_NO_THROW(ChunkShardingSpec(0, {}));
  EXPECT_NOT_IMPLEMENTED(
      ChunkShardingSpec("N", {"cuda:0", "cuda:1"}), "dims have no names");
  EXPECT_VALUE_ERROR(ChunkShardingSpec(0, {"cuda:0", "cuda:foo"}), "an owner");
  EXPECT_VALUE_ERROR(ChunkShardingSpec(0, {"rank:foo", "cuda:1"}), "an owner");
  EXPECT_PLAIN_ERROR(
      ChunkShardingSpec(0, {"rank:0/cuda:foo", "cuda:1"}), "Invalid device");
  EXPECT_PLAIN_ERROR(
      ChunkShardingSpec(0, {"rank:0/cpu2", "cuda:1"}), "Invalid device");
}

TEST(TestShardingSpec, test_enumerable_sharding_spec) {
  const EnumerableShardingSpec rows(
      {{{0, 0}, {5, 5}, "cuda:0"}, {{5, 0}, {5, 5}, "cuda:1"}});
  EXPECT_NO_THROW(check_tensor(rows.shards(), {10, 5}));
  const EnumerableShardingSpec grid(
      {{{0, 0}, {3, 3}, "cuda:0"},
       {{0, 3}, {3, 3}, "cuda:1"},
       {{3, 0}, {3, 3}, "cuda:2"},
       {{3, 3}, {3, 3}, "cuda:3"}});
  EXPECT_NO_THROW(check_tensor(grid.shards(), {6, 6}));
  const EnumerableShardingSpec uneven(
      {{{0, 0}, {2, 4}, "cuda:0"},
       {{2, 0}, {4, 2}, "cuda:1"},
       {{2, 2}, {4, 2}, "cuda:2"}});
  EXPECT_NO_THROW(check_tensor(uneven.shards(), {6, 4}));
  EXPECT_EQ(uneven.build_metadata({6, 4}, {}).shards_metadata, uneven.shards());

  EXPECT_VALUE_ERROR(ShardMetadata({0}, {1, 1}, "cuda:0"), "as many offsets");
  EXPECT_VALUE_ERROR(ShardMetadata({0, 0}, {-1, 1}, "cuda:0"), "negative");
  EXPECT_VALUE_ERROR(ShardMetadata({0, -1}, {1, 1}, "cuda:0"), "negative");
  EXPECT_VALUE_ERROR(EnumerableShardingSpec({}), "at least one shard");
  EXPECT_VALUE_ERROR(
      EnumerableShardingSpec(
          {{{0, 0}, {1, 1}, "cpu"}, {{0, 0, 0}, {1, 1, 1}, "cpu"}}),
      "as many dims as each other");
  EXPECT_VALUE_ERROR(
      EnumerableShardingSpec(
          {{{0, 0}, {3, 3}, "cpu"}, {{2, 0}, {3, 3}, "cpu"}}),
      "shard 0 is ShardMetadata([0, 0], [3, 3], cpu) and shard 1 is");

  EXPECT_VALUE_ERROR(
      rows.build_metadata({10, 10, 10}, {}), "has 2, [10, 10, 10] has 3");
  EXPECT_VALUE_ERROR(rows.build_metadata({10}, {}), "as many dims as their");
  EXPECT_VALUE_ERROR(
      rows.build_metadata({10, 4}, {}), "leaves [10, 4] along dim 1");
  EXPECT_VALUE_ERROR(
      rows.build_metadata({10, 6}, {}), "they have 50, [10, 6] has 60");
}

TEST(TestShardingSpec, test_get_split_size) {
  EXPECT_EQ(get_split_size(11, 4), 3);
  EXPECT_EQ(get_split_size(12, 4), 3);
  EXPECT_EQ(get_split_size(13, 4), 4);
  EXPECT_EQ(get_split_size(5, 4), 2);
  EXPECT_EQ(get_split_size(11, 1), 11);
  EXPECT_EQ(get_split_size(11, 11), 1);
  EXPECT_EQ(get_split_size(0, 4), 0);
  EXPECT_EQ(get_split_size(INT64_MAX, 2), INT64_MAX / 2 + 1);
  EXPECT_VALUE_ERROR(get_split_size(11, 0), "size 11 and 0 chunks");
  EXPECT_VALUE_ERROR(get_split_size(-1, 2), "size -1 and 2 chunks");
}

TEST(TestShardingSpec, test_get_chunked_dim_size) {
  const auto sizes_of = [](int64_t n) {
    Sizes sizes;
    for (int64_t i = 0; i < 4; ++i) {
      sizes.push_back(get_chunked_dim_size(n, get_split_size(n, 4), i));
    }
    return sizes;
  };
  EXPECT_EQ(sizes_of(11), (Sizes{3, 3, 3, 2}));
  EXPECT_EQ(sizes_of(13), (Sizes{4, 4, 4, 1}));
  EXPECT_EQ(sizes_of(5), (Sizes{2, 2, 1, 0}));
  EXPECT_EQ(sizes_of(9), (Sizes{3, 3, 3, 0}));
  EXPECT_EQ(sizes_of(2), (Sizes{1, 1, 0, 0}));
  EXPECT_EQ(sizes_of(0), (Sizes{0, 0, 0, 0}));
  EXPECT_EQ(get_chunked_dim_size(5, 5, 0), 5);
  EXPECT_EQ(get_chunked_dim_size(INT64_MAX, INT64_MAX, 1), 0);
  EXPECT_EQ(get_chunked_dim_size(INT64_MAX, 3, INT64_MAX), 0);
  EXPECT_VALUE_ERROR(get_chunked_dim_size(5, 2, -1), "no argument is negative");
}

TEST(TestShardingSpec, test_get_chunk_sharding_params) {
  const ChunkShardingSpec ordered(
      0, {"rank:0/cuda:0", "rank:1/cuda:1", "rank:2/cuda:2", "rank:3/cuda:3"});
  const ChunkShardingSpec permuted(
      0, {"rank:1/cuda:1", "rank:3/cuda:3", "rank:0/cuda:0", "rank:2/cuda:2"});
  const auto params = [](int64_t n, const ChunkShardingSpec& spec, int64_t r) {
    return get_chunk_sharding_params(n, 4, spec, r);
  };
  using Part = std::pair<int64_t, int64_t>;
  EXPECT_EQ(params(21, ordered, 1), Part(6, 6));
  EXPECT_EQ(params(21, ordered, 3), Part(18, 3));
  EXPECT_EQ(params(21, permuted, 1), Part(0, 6));
  EXPECT_EQ(params(21, permuted, 0), Part(12, 6));
  EXPECT_EQ(params(21, permuted, 2), Part(18, 3));
  EXPECT_EQ(params(5, ordered, 2), Part(4, 1));
  EXPECT_EQ(params(5, ordered, 3), Part(5, 0));
  EXPECT_VALUE_ERROR(params(21, ordered, 4), "rank 4 holds no chunk");
}

// Chunks of `dim` of a tensor, listed in the order of `turn`.
std::vector<ShardMetadata> turned_chunks(
    int64_t dim, const Sizes& sizes, std::vector<RemoteDevice> placements,
    const std::vector<size_t>& turn) {
  const ChunkShardingSpec spec(dim, std::move(placements));
  const auto chunks = spec.build_metadata(sizes, {}).shards_metadata;
  std::vector<ShardMetadata> turned;
  for (const size_t i : turn) {
    turned.push_back(chunks[i]);
  }
  return turned;
}

TEST(TestShardingSpec, test_infer_sharding_spec_from_shards_metadata) {
  const std::vector<ShardMetadata> uneven = {
      {{0, 0}, {2, 4}, "rank:0"},
      {{2, 0}, {4, 2}, "rank:1"},
      {{2, 2}, {4, 2}, "rank:2"}};
  EXPECT_EQ(
      *infer_sharding_spec_from_shards_metadata(uneven),
      EnumerableShardingSpec(uneven));
  const std::vector<ShardMetadata> grid = {
      {{0, 0}, {3, 3}, "rank:0"},
      {{0, 3}, {3, 3}, "rank:1"},
      {{3, 0}, {3, 3}, "rank:2"},
      {{3, 3}, {3, 3}, "rank:3"}};
  EXPECT_EQ(
      *infer_sharding_spec_from_shards_metadata(grid),
      EnumerableShardingSpec(grid));
  const std::vector<RemoteDevice> placements = {
      "rank:2/cuda:2", "rank:0/cuda:0", "rank:3/cuda:3", "rank:1/cuda:1"};
  const Sizes sizes = {11, 16, 9, 13, 8};
  for (size_t ndim = 1; ndim <= 5; ++ndim) {
    const Sizes shape(
        sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(ndim));
    for (int64_t dim = 0; dim < static_cast<int64_t>(ndim); ++dim) {
      for (const int64_t given : {dim, dim - static_cast<int64_t>(ndim)}) {
        EXPECT_EQ(
            *infer_sharding_spec_from_shards_metadata(
                turned_chunks(given, shape, placements, {2, 0, 3, 1})),
            ChunkShardingSpec(dim, placements))
            << "dim " << given << " of " << ndim;
      }
    }
  }
}

TEST(TestShardingSpec, test_check_overlapping) {
  const auto check = [](std::vector<ShardMetadata> shards) {
    validate_non_overlapping_shards_metadata(shards);
  };
  EXPECT_NO_THROW(check({}));
  EXPECT_NO_THROW(check({{{0, 0}, {5, 5}}}));
  EXPECT_NO_THROW(check({{{0, 0}, {5, 5}}, {{5, 0}, {5, 5}}}));
  EXPECT_NO_THROW(
      check({{{0, 0}, {5, 5}}, {{0, 5}, {5, 5}}, {{5, 0}, {5, 10}}}));
  EXPECT_NO_THROW(check({{{0, 0, 0}, {5, 5, 5}}, {{5, 0, 0}, {5, 5, 5}}}));
  EXPECT_VALUE_ERROR(
      check({{{0, 0}, {5, 5}}, {{4, 0}, {5, 5}}}), "must not overlap");
  EXPECT_VALUE_ERROR(
      check({{{0, 0}, {5, 5}}, {{0, 4}, {5, 5}}}), "must not overlap");
  EXPECT_VALUE_ERROR(
      check(
          {{{5, 0, 5}, {5, 5, 5}},
           {{5, 5, 5}, {5, 5, 5}},
           {{9, 4, 9}, {2, 2, 2}}}),
      "must not overlap");
  EXPECT_VALUE_ERROR(
      check({{{0, 0, 0}, {5, 5, 5}}, {{4, 4, 0}, {5, 5, 5}}}),
      "must not overlap");
  EXPECT_VALUE_ERROR(
      check({{{0, 0}, {2, 2}}, {{0, 0}, {2, 2}}}), "must not overlap");
}

TEST(TestCustomShardingSpec, test_custom_sharding_spec) {
  std::vector<RemoteDevice> placements;
  for (int64_t rank = 0; rank < 16; ++rank) {
    placements.emplace_back(rank, c10::Device(c10::kCPU));
  }
  const GridSpec grid(4, placements);
  const ShardedTensorMetadata metadata = grid.build_metadata({8, 8}, {});
  ASSERT_EQ(metadata.shards_metadata.size(), 16u);
  EXPECT_NO_THROW(check_tensor(metadata.shards_metadata, metadata.size));
  EXPECT_NO_THROW(
      validate_non_overlapping_shards_metadata(metadata.shards_metadata));
  EXPECT_EQ(
      metadata.shards_metadata[6], ShardMetadata({2, 4}, {2, 2}, "rank:6"));
  EXPECT_EQ(to_string(grid), "GridSpec");
  EXPECT_EQ(grid, *grid.clone());
}

}  // namespace
}  // namespace tessera::sharded_tensor
