#include <tessera/sharded_tensor/metadata.h>

#include <sstream>

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <tessera/sharded_tensor/serialize.h>

#include "sharded_tensor/spec/expect_torch_error.h"

namespace tessera::sharded_tensor {
namespace {

constexpr c10::MemoryFormat kFormats[] = {
    c10::MemoryFormat::Contiguous, c10::MemoryFormat::ChannelsLast,
    c10::MemoryFormat::Preserve};

// Checklist case 81, the part without ranks.
TEST(TestShardMetadata, test_shard_metadata_init) {
  const ShardMetadata bare({0}, {10});
  EXPECT_FALSE(bare.placement.has_value());
  const ShardMetadata placed({0}, {10}, "cuda:0");
  EXPECT_EQ(placed.placement, RemoteDevice(c10::Device("cuda:0")));
  EXPECT_EQ(ShardMetadata({0}, {10}, "rank:1/cpu").placement->rank(), 1);
  EXPECT_VALUE_ERROR(ShardMetadata({0}, {10}, "rank:x"), "an owner is rank:N");
}

TEST(ShardMetadata, RefusesOffsetsAndSizesThatDoNotFit) {
  EXPECT_VALUE_ERROR(ShardMetadata({0}, {1, 1}), "1 offsets and 2 sizes");
  EXPECT_VALUE_ERROR(ShardMetadata({0, -1}, {1, 1}), "is negative");
  EXPECT_VALUE_ERROR(ShardMetadata({0, 1}, {1, -1}), "is negative");
  EXPECT_VALUE_ERROR(ShardMetadata({INT64_MAX}, {1}), "ends before 2^63");
  EXPECT_NO_THROW(ShardMetadata({INT64_MAX}, {0}));
  EXPECT_NO_THROW(ShardMetadata({}, {}));
}

TEST(ShardMetadata, ComparesHashesAndPrintsAllFields) {
  const ShardMetadata a({0, 5}, {3, 20}, "rank:0/cpu");
  EXPECT_EQ(a, ShardMetadata({0, 5}, {3, 20}, "rank:0/cpu"));
  const ShardMetadata others[] = {
      {{1, 5}, {3, 20}, "rank:0/cpu"},
      {{0, 5}, {3, 21}, "rank:0/cpu"},
      {{0, 5}, {3, 20}, "rank:1/cpu"},
      {{0, 5}, {3, 20}},
      {{0}, {3}, "rank:0/cpu"}};
  const std::hash<ShardMetadata> hash;
  for (const ShardMetadata& other : others) {
    EXPECT_NE(a, other);
    EXPECT_NE(hash(a), hash(other)) << other;
  }
  EXPECT_EQ(hash(a), hash(ShardMetadata({0, 5}, {3, 20}, "rank:0")));
  EXPECT_EQ(to_string(a), "ShardMetadata([0, 5], [3, 20], rank:0/cpu)");
  EXPECT_EQ(to_string(others[3]), "ShardMetadata([0, 5], [3, 20])");
  EXPECT_EQ(a.box(), (Box{{0, 5}, {3, 20}}));
}

TEST(MemFormatEncoding, HasThreeFormats) {
  for (const c10::MemoryFormat format : kFormats) {
    EXPECT_EQ(decode_memory_format(encode_memory_format(format)), format);
  }
  EXPECT_EQ(static_cast<int>(encode_memory_format(kFormats[0])), 0);
  EXPECT_EQ(static_cast<int>(encode_memory_format(kFormats[1])), 1);
  EXPECT_EQ(static_cast<int>(encode_memory_format(kFormats[2])), 2);
  EXPECT_PLAIN_ERROR(
      encode_memory_format(c10::MemoryFormat::ChannelsLast3d), "have a code");
  EXPECT_PLAIN_ERROR(
      decode_memory_format(static_cast<MemFormatEncoding>(3)),
      "codes are 0, 1 and 2; got 3");
  EXPECT_PLAIN_ERROR(
      serialize(
          TensorProperties{.memory_format = c10::MemoryFormat::ChannelsLast3d}),
      "have a code");
}

TEST(TensorProperties, AreTakenFromATensor) {
  const at::Tensor tensor =
      at::ones({2, 3}, at::TensorOptions().dtype(at::kDouble))
          .set_requires_grad(true);
  EXPECT_EQ(
      TensorProperties::create_from_tensor(tensor),
      (TensorProperties{.dtype = at::kDouble, .requires_grad = true}));
  const at::Tensor sparse = at::ones({2, 3}, at::kInt).to_sparse();
  EXPECT_EQ(
      TensorProperties::create_from_tensor(sparse),
      (TensorProperties{.dtype = at::kInt, .layout = at::kSparse}));
}

TEST(TensorProperties, TakeTheDefaultDtypeOfTheMoment) {
  EXPECT_EQ(TensorProperties{}.dtype, at::kFloat);
  c10::set_default_dtype(c10::scalarTypeToTypeMeta(at::kDouble));
  EXPECT_EQ(TensorProperties{}.dtype, at::kDouble);
  c10::set_default_dtype(c10::scalarTypeToTypeMeta(at::kFloat));
}

TEST(TensorProperties, ArePrinted) {
  std::ostringstream out;
  out << TensorProperties{.dtype = at::kBFloat16, .pin_memory = true} << " "
      << TensorProperties{
             .dtype = at::kFloat8_e5m2,
             .layout = at::kSparseCsr,
             .requires_grad = true,
             .memory_format = c10::MemoryFormat::ChannelsLast3d};
  EXPECT_EQ(
      out.str(),
      "TensorProperties(bf16, strided, requires_grad=false, contiguous, "
      "pin_memory=true) TensorProperties(Float8_e5m2, sparse_csr, "
      "requires_grad=true, channels_last_3d, pin_memory=false)");
}

TEST(ShardedTensorMetadata, IsPrintedAndCompared) {
  const ShardedTensorMetadata metadata{
      {{{0}, {2}, "rank:0/cpu"}, {{2}, {1}, "rank:1/cpu"}}, {3}, {}};
  EXPECT_EQ(
      to_string(metadata),
      "ShardedTensorMetadata([3], TensorProperties(f32, strided, "
      "requires_grad=false, contiguous, pin_memory=false), "
      "[ShardMetadata([0], [2], rank:0/cpu), ShardMetadata([2], [1], "
      "rank:1/cpu)])");
  ShardedTensorMetadata turned = metadata;
  std::swap(turned.shards_metadata[0], turned.shards_metadata[1]);
  EXPECT_NE(metadata, turned);
  EXPECT_TRUE(same_shards(metadata.shards_metadata, turned.shards_metadata));
}

TEST(SameShards, IgnoreOrderAndThePlaceOfEmptyShards) {
  const std::vector<ShardMetadata> clamped = {
      {{0, 0}, {1, 4}, "rank:0"},
      {{1, 0}, {1, 4}, "rank:1"},
      {{2, 0}, {0, 4}, "rank:2"},
      {{2, 0}, {0, 4}, "rank:3"}};
  const std::vector<ShardMetadata> unclamped = {
      {{3, 0}, {0, 4}, "rank:3"},
      {{1, 0}, {1, 4}, "rank:1"},
      {{2, 0}, {0, 4}, "rank:2"},
      {{0, 0}, {1, 4}, "rank:0"}};
  EXPECT_TRUE(same_shards(clamped, unclamped));
  std::vector<ShardMetadata> other = unclamped;
  other[0].placement = RemoteDevice("rank:2");
  EXPECT_FALSE(same_shards(clamped, other));
  other = unclamped;
  other[1].shard_sizes = {1, 3};
  EXPECT_FALSE(same_shards(clamped, other));
  other = unclamped;
  other.pop_back();
  EXPECT_FALSE(same_shards(clamped, other));
  // As often as they stand there.
  EXPECT_FALSE(same_shards(
      {clamped[0], clamped[0], clamped[1]},
      {clamped[0], clamped[1], clamped[1]}));
  EXPECT_TRUE(same_shards({}, {}));
}

// Checklist case 18.
TEST(TestShardedTensorMetadata, test_serialize_and_deserialize) {
  const c10::ScalarType dtypes[] = {
      at::kFloat,        at::kDouble,        at::kHalf, at::kBFloat16,
      at::kComplexFloat, at::kComplexDouble, at::kByte, at::kChar,
      at::kShort,        at::kInt,           at::kLong, at::kBool};
  const std::vector<ShardMetadata> shards = {
      {{0, 0}, {5, 5}, "rank:0/cuda:0"},
      {{0, 5}, {5, 5}, "rank:1/cuda:1"},
      {{5, 0}, {5, 5}, "worker2/cpu"},
      {{5, 5}, {5, 5}}};
  int64_t cases = 0;
  for (const c10::ScalarType dtype : dtypes) {
    for (const c10::Layout layout : {c10::kStrided, c10::kSparse}) {
      for (const bool grad : {true, false}) {
        for (const c10::MemoryFormat format : kFormats) {
          for (const bool pin : {true, false}) {
            const ShardedTensorMetadata metadata{
                shards, {10, 10}, {dtype, layout, grad, format, pin}};
            EXPECT_EQ(
                deserialize<ShardedTensorMetadata>(serialize(metadata)),
                metadata);
            EXPECT_EQ(
                deserialize<TensorProperties>(
                    serialize(metadata.tensor_properties)),
                metadata.tensor_properties);
            ++cases;
          }
        }
      }
    }
  }
  EXPECT_EQ(cases, 12 * 2 * 2 * 3 * 2);
}

}  // namespace
}  // namespace tessera::sharded_tensor
