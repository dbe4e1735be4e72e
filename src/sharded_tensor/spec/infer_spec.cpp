#include <algorithm>
#include <optional>

#include <tessera/sharded_tensor/sharding_spec.h>

#include "sharded_tensor/spec/shard_checks.h"

namespace tessera::sharded_tensor {

namespace {

using Shards = std::vector<const ShardMetadata*>;

// Returns the dim along which shards begin elsewhere than at 0, if it is one
// and the same.
std::optional<size_t> only_moved_dim(const Shards& shards) {
  std::optional<size_t> moved;
  for (const ShardMetadata* shard : shards) {
    for (size_t d = 0; d < shard->shard_offsets.size(); ++d) {
      if (shard->shard_offsets[d] == 0) {
        continue;
      }
      if (moved.value_or(d) != d) {
        return std::nullopt;
      }
      moved = d;
    }
  }
  return moved;
}

bool alike_beside(const ShardMetadata& a, const ShardMetadata& b, size_t dim) {
  for (size_t d = 0; d < a.shard_sizes.size(); ++d) {
    if (d != dim && a.shard_sizes[d] != b.shard_sizes[d]) {
      return false;
    }
  }
  return true;
}

std::optional<int64_t> sum_of_sizes(const Shards& shards, size_t dim) {
  int64_t sum = 0;
  for (const ShardMetadata* shard : shards) {
    if (__builtin_add_overflow(sum, shard->shard_sizes[dim], &sum)) {
      return std::nullopt;
    }
  }
  return sum;
}

// Tells whether sorted shards are the chunks of `dim`. An empty one may begin
// at the end of the dim or where its chunk would: 5 over 4 at 0 2 4 5 or 0 2
// 4 6.
bool are_chunks(const Shards& shards, size_t dim) {
  const auto n = sum_of_sizes(shards, dim);
  if (!n) {
    return false;
  }
  const auto count = static_cast<int64_t>(shards.size());
  const int64_t split_size = get_split_size(*n, count);
  int64_t start = 0;
  for (int64_t i = 0; i < count; ++i) {
    const ShardMetadata& shard = *shards[static_cast<size_t>(i)];
    const int64_t size = get_chunked_dim_size(*n, split_size, i);
    const int64_t offset = shard.shard_offsets[dim];
    // A quotient, since the product may exceed 64 bits.
    const bool begins_unclamped = size == 0 && split_size > 0 &&
                                  offset % split_size == 0 &&
                                  offset / split_size == i;
    if (!shard.placement || shard.shard_sizes[dim] != size ||
        !(offset == start || begins_unclamped) ||
        !alike_beside(shard, *shards[0], dim)) {
      return false;
    }
    start += size;
  }
  return true;
}

ShardingSpecPtr chunks_of(const Shards& shards, size_t dim) {
  std::vector<RemoteDevice> placements;
  placements.reserve(shards.size());
  for (const ShardMetadata* shard : shards) {
    placements.push_back(*shard->placement);
  }
  return std::make_shared<ChunkShardingSpec>(
      static_cast<int64_t>(dim), std::move(placements));
}

}  // namespace

ShardingSpecPtr infer_sharding_spec_from_shards_metadata(
    const std::vector<ShardMetadata>& shards) {
  // The checks of a list of shards hold for chunks as well.
  auto list = std::make_shared<EnumerableShardingSpec>(shards);
  Shards sorted;
  sorted.reserve(shards.size());
  for (const ShardMetadata& shard : shards) {
    sorted.push_back(&shard);
  }
  const auto dim = only_moved_dim(sorted);
  if (!dim) {
    return list;
  }
  std::stable_sort(
      sorted.begin(), sorted.end(),
      [&](const ShardMetadata* a, const ShardMetadata* b) {
        return a->shard_offsets[*dim] < b->shard_offsets[*dim];
      });
  return are_chunks(sorted, *dim) ? chunks_of(sorted, *dim) : list;
}

}  // namespace tessera::sharded_tensor
