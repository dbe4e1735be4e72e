// What tests of the ShardedTensor family share.
#pragma once

#include <string>
#include <vector>

#include <harness/sharded_test.h>
#include <tessera/sharded_tensor/conversion.h>
#include <tessera/sharded_tensor/create.h>
#include <tessera/sharded_tensor/errors.h>
#include <tessera/sharded_tensor/serialize.h>

namespace tessera::testing {

/// The ranks of most of these tests.
inline const std::vector<int64_t> kAll = {0, 1, 2, 3};

/// Returns this rank's device under test, as text: "cpu", "cuda:0".
inline std::string device_text() {
  return device() == at::kCPU ? "cpu" : "cuda:0";
}

/// Returns "rank:R/DEVICE" for each rank, in order.
inline std::vector<sharded_tensor::RemoteDevice> places(
    const std::vector<int64_t>& ranks) {
  std::vector<sharded_tensor::RemoteDevice> list;
  for (const int64_t r : ranks) {
    list.emplace_back(r, c10::Device(device_text()));
  }
  return list;
}

inline sharded_tensor::ChunkShardingSpec chunks(
    int64_t dim, const std::vector<int64_t>& ranks) {
  return sharded_tensor::ChunkShardingSpec(dim, places(ranks));
}

inline sharded_tensor::ShardMetadata box_of(
    std::vector<int64_t> offsets, std::vector<int64_t> sizes, int64_t rank) {
  return {std::move(offsets), std::move(sizes), places({rank})[0]};
}

/// A 2 x 2 grid of squares of side `n`, ranks in row-major order.
inline sharded_tensor::EnumerableShardingSpec grid(
    int64_t n, const std::vector<int64_t>& ranks) {
  return sharded_tensor::EnumerableShardingSpec(
      {box_of({0, 0}, {n, n}, ranks[0]), box_of({0, n}, {n, n}, ranks[1]),
       box_of({n, 0}, {n, n}, ranks[2]), box_of({n, n}, {n, n}, ranks[3])});
}

/// Gathers a sharded tensor on every rank of its group, by the definition: the
/// shards of all, copied one by one where their metadata say.
inline at::Tensor whole_value(const sharded_tensor::ShardedTensor& t) {
  at::Tensor out;
  const auto& group = t.process_group();
  for (int64_t dst = 0; dst < group.size(); ++dst) {
    at::Tensor mine;
    if (group.rank() == dst) {
      mine =
          at::empty(t.sizes(), at::TensorOptions(t.dtype()).device(device()));
    }
    t.gather(dst, mine);
    out = mine.defined() ? mine : out;
  }
  return out;
}

/// Returns the sizes of all shards along a dim, in the order of the metadata.
inline std::vector<int64_t> sizes_of(
    const sharded_tensor::ShardedTensor& t, size_t dim) {
  std::vector<int64_t> sizes;
  for (const auto& shard : t.metadata().shards_metadata) {
    sizes.push_back(shard.shard_sizes[dim]);
  }
  return sizes;
}

/// Returns where all shards begin along a dim.
inline std::vector<int64_t> offsets_of(
    const sharded_tensor::ShardedTensor& t, size_t dim) {
  std::vector<int64_t> offsets;
  for (const auto& shard : t.metadata().shards_metadata) {
    offsets.push_back(shard.shard_offsets[dim]);
  }
  return offsets;
}

/// Tells whether each local shard is the part of `whole` that its metadata say.
inline ::testing::AssertionResult shards_are(
    const sharded_tensor::ShardedTensor& t, const at::Tensor& whole) {
  for (const auto& shard : t.local_shards()) {
    at::Tensor want = whole;
    const auto& [offsets, sizes, placement] = shard.metadata;
    for (size_t d = 0; d < sizes.size(); ++d) {
      const int64_t begin =
          std::min(offsets[d], whole.size(static_cast<int64_t>(d)) - sizes[d]);
      want = want.narrow(static_cast<int64_t>(d), begin, sizes[d]);
    }
    if (auto result = same(shard.tensor, want); !result) {
      return result << " in " << to_string(shard.metadata);
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace tessera::testing

/// Expects an error of exactly this type whose text contains `text`.
#define EXPECT_THROWN(Type, text, ...)                                \
  do {                                                                \
    try {                                                             \
      static_cast<void>(__VA_ARGS__);                                 \
      ADD_FAILURE() << "no error from " #__VA_ARGS__;                 \
    } catch (const c10::Error& e) {                                   \
      EXPECT_TRUE(typeid(e) == typeid(Type))                          \
          << "another type of error: " << e.what_without_backtrace(); \
      EXPECT_PRED_FORMAT2(                                            \
          ::testing::IsSubstring, text,                               \
          std::string(e.what_without_backtrace()));                   \
    }                                                                 \
  } while (false)
