#include "sharded_tensor/spec/shard_checks.h"

#include <algorithm>
#include <limits>

#include <c10/util/Exception.h>
#include <tessera/layout/notation.h>
#include <tessera/sharded_tensor/sharding_spec.h>

#include "layout/arithmetic.h"

namespace tessera::sharded_tensor {

namespace format {

void check_shard(const ShardMetadata& shard) {
  const auto is_negative = [](int64_t value) { return value < 0; };
  const auto& [offsets, sizes, placement] = shard;
  TORCH_CHECK_VALUE(
      offsets.size() == sizes.size(),
      "ShardMetadata: as many offsets as sizes are needed; got ",
      offsets.size(), " offsets and ", sizes.size(), " sizes");
  TORCH_CHECK_VALUE(
      std::none_of(offsets.begin(), offsets.end(), is_negative) &&
          std::none_of(sizes.begin(), sizes.end(), is_negative),
      "ShardMetadata: no offset and no size is negative; got ",
      to_string(shard));
  for (size_t d = 0; d < sizes.size(); ++d) {
    TORCH_CHECK_VALUE(
        offsets[d] <= std::numeric_limits<int64_t>::max() - sizes[d],
        "ShardMetadata: a shard ends before 2^63 in every dim; got ",
        to_string(shard));
  }
}

void check_sizes(const char* call, const std::vector<int64_t>& sizes) {
  for (const int64_t size : sizes) {
    TORCH_CHECK_VALUE(
        size >= 0, call, ": no size of a tensor is negative; got ",
        shape_to_string(sizes));
  }
}

}  // namespace format

int64_t get_split_size(int64_t n, int64_t chunks) {
  TORCH_CHECK_VALUE(
      n >= 0 && chunks >= 1,
      "get_split_size: a size >= 0 is cut into at least one chunk; got size ",
      n, " and ", chunks, " chunks");
  return tessera::detail::ceil_div(n, chunks);
}

int64_t get_chunked_dim_size(int64_t n, int64_t split_size, int64_t i) {
  TORCH_CHECK_VALUE(
      n >= 0 && split_size >= 0 && i >= 0,
      "get_chunked_dim_size: no argument is negative; got size ", n,
      ", split size ", split_size, ", chunk ", i);
  if (split_size == 0 || i > n / split_size) {
    return 0;
  }
  return std::min(split_size, n - split_size * i);
}

std::pair<int64_t, int64_t> get_chunk_sharding_params(
    int64_t n, int64_t world_size, const ChunkShardingSpec& spec,
    int64_t rank) {
  const int64_t split_size = get_split_size(n, world_size);
  int64_t start = 0;
  int64_t chunk = 0;
  for (const RemoteDevice& placement : spec.placements()) {
    const int64_t size = get_chunked_dim_size(n, split_size, chunk++);
    if (placement.rank() == rank) {
      return {start, size};
    }
    start += size;
  }
  TORCH_CHECK_VALUE(
      false, "get_chunk_sharding_params: rank ", rank, " holds no chunk of ",
      to_string(spec));
}

void validate_non_overlapping_shards_metadata(
    const std::vector<ShardMetadata>& shards) {
  std::vector<Box> boxes;
  boxes.reserve(shards.size());
  for (const ShardMetadata& shard : shards) {
    format::check_shard(shard);
    boxes.push_back(shard.box());
  }
  if (const auto pair = find_overlap(boxes)) {
    TORCH_CHECK_VALUE(
        false,
        "validate_non_overlapping_shards_metadata: shards must not overlap; "
        "shard ",
        pair->first, " is ", to_string(shards[pair->first]), " and shard ",
        pair->second, " is ", to_string(shards[pair->second]));
  }
}

namespace {

// Sizes of 0 hold nothing, wherever they begin.
void check_bounds(
    const ShardMetadata& shard, const std::vector<int64_t>& sizes) {
  for (size_t d = 0; d < sizes.size(); ++d) {
    const int64_t size = shard.shard_sizes[d];
    TORCH_CHECK_VALUE(
        size == 0 ||
            (size <= sizes[d] && shard.shard_offsets[d] <= sizes[d] - size),
        "check_tensor: a shard lies inside its tensor; ", to_string(shard),
        " leaves ", shape_to_string(sizes), " along dim ", d);
  }
}

}  // namespace

void check_tensor(
    const std::vector<ShardMetadata>& shards,
    const std::vector<int64_t>& sizes) {
  format::check_sizes("check_tensor", sizes);
  const auto wanted = tessera::detail::checked_product(sizes);
  TORCH_CHECK_VALUE(
      wanted, "check_tensor: a tensor has less than 2^63 elements; got ",
      shape_to_string(sizes));
  int64_t volume = 0;
  bool is_beyond = false;
  for (const ShardMetadata& shard : shards) {
    format::check_shard(shard);
    TORCH_CHECK_VALUE(
        shard.shard_sizes.size() == sizes.size(),
        "check_tensor: shards have as many dims as their tensor; ",
        to_string(shard), " has ", shard.shard_sizes.size(), ", ",
        shape_to_string(sizes), " has ", sizes.size());
    check_bounds(shard, sizes);
    // Inside the bounds no shard has more elements than the tensor.
    is_beyond = is_beyond ||
                __builtin_add_overflow(volume, shard.box().numel(), &volume);
  }
  TORCH_CHECK_VALUE(
      !is_beyond && volume == *wanted,
      "check_tensor: shards have as many elements as their tensor; they have ",
      is_beyond ? "more than 2^63" : std::to_string(volume), ", ",
      shape_to_string(sizes), " has ", *wanted);
}

}  // namespace tessera::sharded_tensor
