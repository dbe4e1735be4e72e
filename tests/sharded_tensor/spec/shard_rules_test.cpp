// Rules about chunks, empty shards, order and dims that hold for every spec.
#include <numeric>
#include <sstream>

#include <ATen/ops/arange.h>
#include <gtest/gtest.h>
#include <tessera/sharded_tensor/sharding_spec.h>

#include "sharded_tensor/spec/expect_torch_error.h"

namespace tessera::sharded_tensor {
namespace {

using Sizes = std::vector<int64_t>;
using Shards = std::vector<ShardMetadata>;

std::vector<RemoteDevice> ranks(int64_t count) {
  std::vector<RemoteDevice> placements;
  for (int64_t rank = 0; rank < count; ++rank) {
    placements.emplace_back(rank, c10::Device(c10::kCPU));
  }
  return placements;
}

Shards chunks(int64_t n, int64_t count) {
  return ChunkShardingSpec(0, ranks(count))
      .build_metadata({n, 7}, {})
      .shards_metadata;
}

// The list with the offsets of empty chunks behind the end of the dim.
Shards unclamped(Shards shards, int64_t n) {
  const int64_t split = get_split_size(n, static_cast<int64_t>(shards.size()));
  for (size_t i = 0; i < shards.size(); ++i) {
    shards[i].shard_offsets[0] = split * static_cast<int64_t>(i);
  }
  return shards;
}

TEST(ClampedOffsets, OfEmptyChunksAreTheSizeOfTheDim) {
  const auto offsets = [](int64_t n) {
    Sizes result;
    for (const ShardMetadata& shard : chunks(n, 4)) {
      result.push_back(shard.shard_offsets[0]);
    }
    return result;
  };
  EXPECT_EQ(offsets(2), (Sizes{0, 1, 2, 2}));
  EXPECT_EQ(offsets(5), (Sizes{0, 2, 4, 5}));
  EXPECT_EQ(offsets(9), (Sizes{0, 3, 6, 9}));
  EXPECT_EQ(offsets(0), (Sizes{0, 0, 0, 0}));
}

TEST(ClampedOffsets, UnclampedListsAreTheSameEverywhere) {
  for (int64_t n = 0; n <= 20; ++n) {
    for (int64_t count = 1; count <= 9; ++count) {
      SCOPED_TRACE(c10::str(n, " over ", count));
      const Shards clamped = chunks(n, count);
      const Shards given = unclamped(clamped, n);
      EXPECT_TRUE(same_shards(clamped, given));
      EXPECT_EQ(EnumerableShardingSpec(clamped), EnumerableShardingSpec(given));
      EXPECT_NO_THROW(check_tensor(given, {n, 7}));
      EXPECT_NO_THROW(EnumerableShardingSpec(given).build_metadata({n, 7}, {}));
      EXPECT_EQ(
          *infer_sharding_spec_from_shards_metadata(clamped),
          *infer_sharding_spec_from_shards_metadata(given));
      const bool one_place = count == 1 || n == 0;
      EXPECT_EQ(
          infer_sharding_spec_from_shards_metadata(given)->name(),
          one_place ? "EnumerableShardingSpec" : "ChunkShardingSpec");
    }
  }
}

TEST(ClampedOffsets, DoNotOverflowAtTheLargestSize) {
  const Shards shards = ChunkShardingSpec(0, ranks(4))
                            .build_metadata({INT64_MAX}, {})
                            .shards_metadata;
  EXPECT_EQ(shards[3].shard_offsets[0], 3 * (INT64_MAX / 4 + 1));
  EXPECT_EQ(shards[3].shard_offsets[0] + shards[3].shard_sizes[0], INT64_MAX);
  EXPECT_EQ(
      *infer_sharding_spec_from_shards_metadata(shards),
      ChunkShardingSpec(0, ranks(4)));
}

TEST(NegativeDims, CutLikeTheDimTheyMean) {
  const ChunkShardingSpec front(1, ranks(3));
  const ChunkShardingSpec back(-1, ranks(3));
  EXPECT_EQ(front.build_metadata({4, 7}, {}), back.build_metadata({4, 7}, {}));
  EXPECT_FALSE(front == back) << "specs keep the dim as it was given";
  EXPECT_EQ(
      to_string(back),
      "ChunkShardingSpec(-1, [rank:0/cpu, rank:1/cpu, rank:2/cpu])");
}

TEST(ChunkShardingSpec, RefusesTensorsThatLackTheDim) {
  const ChunkShardingSpec spec(2, ranks(2));
  EXPECT_VALUE_ERROR(
      spec.build_metadata({4, 7}, {}), "dim 2 is not one of the 2 dims");
  EXPECT_VALUE_ERROR(
      ChunkShardingSpec(-3, ranks(2)).build_metadata({4, 7}, {}), "dim -3");
  for (const int64_t dim : {-1, 0}) {
    EXPECT_VALUE_ERROR(
        ChunkShardingSpec(dim, ranks(2)).build_metadata({}, {}),
        "one of the 0 dims");
  }
  EXPECT_VALUE_ERROR(
      ChunkShardingSpec(INT64_MIN, ranks(2)).build_metadata({4}, {}), "dim -9");
  EXPECT_VALUE_ERROR(
      spec.build_metadata({4, 7, -2}, {}), "no size of a tensor is negative");
  EXPECT_VALUE_ERROR(
      ChunkShardingSpec(0, {}).build_metadata({4}, {}),
      "at least one placement");
}

TEST(ChunkShardingSpec, ListsShardsInTheOrderOfPlacements) {
  const ChunkShardingSpec spec(0, {"rank:3", "rank:0", "rank:3"});
  const Shards wanted = {
      {{0, 0}, {4, 2}, "rank:3"},
      {{4, 0}, {4, 2}, "rank:0"},
      {{8, 0}, {2, 2}, "rank:3"}};
  EXPECT_EQ(spec.build_metadata({10, 2}, {}).shards_metadata, wanted);
}

TEST(ShardingSpecs, CompareWithTheirOwnTypeOnly) {
  // A user's spec with a field that the library does not know.
  class Derived : public ChunkShardingSpec {
   public:
    using ChunkShardingSpec::ChunkShardingSpec;
  };
  const ChunkShardingSpec spec(0, ranks(2));
  const Derived derived(0, ranks(2));
  EXPECT_FALSE(spec == derived);
  EXPECT_FALSE(derived == spec);
  EXPECT_EQ(derived, Derived(0, ranks(2)));
  EXPECT_EQ(spec, *spec.clone());
  EXPECT_FALSE(spec == ChunkShardingSpec(0, ranks(3)));
  EXPECT_FALSE(spec == EnumerableShardingSpec(chunks(4, 2)));
}

TEST(EnumerableShardingSpec, KeepsTheCallersOrderAndComparesWithoutIt) {
  Shards shards = chunks(9, 3);
  const EnumerableShardingSpec spec(shards);
  std::swap(shards[0], shards[2]);
  const EnumerableShardingSpec turned(shards);
  EXPECT_EQ(turned.build_metadata({9, 7}, {}).shards_metadata, shards);
  EXPECT_EQ(spec, turned);
  EXPECT_EQ(*spec.clone(), turned);
  shards[1].placement = RemoteDevice("rank:7");
  EXPECT_FALSE(spec == EnumerableShardingSpec(shards));
  std::ostringstream out;
  out << EnumerableShardingSpec({{{0}, {2}}});
  EXPECT_EQ(out.str(), "EnumerableShardingSpec([ShardMetadata([0], [2])])");
}

TEST(EmptyShards, OverlapNothing) {
  const auto check = [](const Shards& shards) {
    validate_non_overlapping_shards_metadata(shards);
  };
  EXPECT_NO_THROW(check({{{0}, {4}}, {{2}, {0}}}));
  EXPECT_NO_THROW(check({{{0, 0}, {4, 4}}, {{2, 2}, {0, 1}}}));
  EXPECT_NO_THROW(check({{{3}, {0}}, {{3}, {0}}, {{3}, {0}}}));
  EXPECT_NO_THROW(EnumerableShardingSpec({{{0}, {0}}, {{0}, {0}}}));
}

TEST(CheckTensor, CountsWithoutOverflow) {
  const int64_t half = int64_t{1} << 62;
  EXPECT_VALUE_ERROR(
      check_tensor(
          {{{0}, {half}}, {{0}, {half}}, {{0}, {half}}, {{0}, {half}}}, {half}),
      "they have more than 2^63");
  EXPECT_VALUE_ERROR(
      check_tensor({{{0, 0}, {1, 1}}}, {half, 4}), "less than 2^63 elements");
  EXPECT_VALUE_ERROR(check_tensor({{{0}, {4}}}, {-4}), "is negative");
  EXPECT_VALUE_ERROR(check_tensor({}, {4}), "they have 0, [4] has 4");
  EXPECT_NO_THROW(check_tensor({{{}, {}}}, {}));
  EXPECT_NO_THROW(check_tensor({{{0, 0}, {0, half}}}, {0, half}));
}

TEST(CheckTensor, AsksAnEmptyShardForItsOtherDims) {
  EXPECT_NO_THROW(check_tensor({{{0, 0}, {4, 7}}, {{9, 0}, {0, 7}}}, {4, 7}));
  EXPECT_VALUE_ERROR(
      check_tensor({{{0, 0}, {4, 7}}, {{4, 0}, {0, 8}}}, {4, 7}),
      "along dim 1");
}

TEST(InferShardingSpec, TakesNoListThatOnlyLooksLikeChunks) {
  const auto kind = [](const Shards& shards) {
    return infer_sharding_spec_from_shards_metadata(shards)->name();
  };
  const std::string list = "EnumerableShardingSpec";
  EXPECT_EQ(kind({{{0}, {4}, "rank:0"}}), list);
  EXPECT_EQ(kind({{{4}, {4}, "rank:0"}}), list);
  EXPECT_EQ(kind({{{0}, {0}, "rank:0"}, {{0}, {0}, "rank:1"}}), list);
  // Cut elsewhere, other sizes beside, a hole, nobody's shard.
  EXPECT_EQ(kind({{{0}, {1}, "rank:0"}, {{1}, {3}, "rank:1"}}), list);
  EXPECT_EQ(
      kind({{{0, 0}, {2, 3}, "rank:0"}, {{2, 0}, {2, 4}, "rank:1"}}), list);
  EXPECT_EQ(kind({{{0}, {2}, "rank:0"}, {{3}, {2}, "rank:1"}}), list);
  EXPECT_EQ(kind({{{0}, {2}, "rank:0"}, {{2}, {2}}}), list);
  // An empty chunk that begins neither at the end nor where it would.
  EXPECT_EQ(
      kind({{{0}, {1}, "rank:0"}, {{1}, {1}, "rank:1"}, {{7}, {0}, "rank:2"}}),
      list);
  EXPECT_VALUE_ERROR(
      infer_sharding_spec_from_shards_metadata({}), "at least one shard");
  EXPECT_VALUE_ERROR(kind({{{0}, {2}}, {{1}, {2}}}), "must not overlap");
}

TEST(NarrowTensor, SharesTheMemoryOfTheBox) {
  const at::Tensor tensor = at::arange(20).view({4, 5});
  const at::Tensor part = narrow_tensor(tensor, {{1, 2}, {2, 3}});
  EXPECT_TRUE(part.equal(tensor.narrow(0, 1, 2).narrow(1, 2, 3)));
  part.zero_();
  EXPECT_EQ(tensor[1][2].item<int64_t>(), 0);
  EXPECT_EQ(tensor[1][1].item<int64_t>(), 6);
  EXPECT_EQ(narrow_tensor(tensor, {{9, 0}, {0, 5}}).sizes(), (Sizes{0, 5}));
  EXPECT_VALUE_ERROR(
      narrow_tensor(tensor, {{1, 0}, {4, 5}}), "leaves [4, 5] along dim 0");
  EXPECT_VALUE_ERROR(narrow_tensor(tensor, {{1}, {2}}), "as many dims");
}

}  // namespace
}  // namespace tessera::sharded_tensor
