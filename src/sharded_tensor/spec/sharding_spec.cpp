#include <tessera/sharded_tensor/sharding_spec.h>

#include <ostream>
#include <typeinfo>

#include <c10/util/Exception.h>
#include <tessera/layout/notation.h>

#include "base/text.h"
#include "sharded_tensor/spec/shard_checks.h"

namespace tessera::sharded_tensor {

ChunkShardingSpec::ChunkShardingSpec(
    int64_t dim, std::vector<RemoteDevice> placements)
    : dim_(dim), placements_(std::move(placements)) {}

ChunkShardingSpec::ChunkShardingSpec(
    const std::string& dim, const std::vector<RemoteDevice>& /*placements*/)
    : dim_(0) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, "ChunkShardingSpec: dims have no names; got '", dim,
      "'; pass the dim's number");
}

namespace {

// Returns the dim's number from the front.
int64_t dim_of(
    const ChunkShardingSpec& spec, const std::vector<int64_t>& sizes) {
  const auto ndim = static_cast<int64_t>(sizes.size());
  TORCH_CHECK_VALUE(
      spec.dim() < ndim && spec.dim() >= -ndim,
      "ChunkShardingSpec::build_metadata: dim ", spec.dim(),
      " is not one of the ", ndim, " dims of a tensor ",
      shape_to_string(sizes));
  return spec.dim() < 0 ? spec.dim() + ndim : spec.dim();
}

}  // namespace

ShardedTensorMetadata ChunkShardingSpec::build_metadata(
    const std::vector<int64_t>& sizes,
    const TensorProperties& properties) const {
  format::check_sizes("ChunkShardingSpec::build_metadata", sizes);
  const auto dim = static_cast<size_t>(dim_of(*this, sizes));
  TORCH_CHECK_VALUE(
      !placements_.empty(),
      "ChunkShardingSpec::build_metadata: at least one placement is needed to "
      "hold a tensor ",
      shape_to_string(sizes));
  const auto count = static_cast<int64_t>(placements_.size());
  const int64_t split_size = get_split_size(sizes[dim], count);
  ShardedTensorMetadata metadata{
      .size = sizes, .tensor_properties = properties};
  metadata.shards_metadata.reserve(placements_.size());
  std::vector<int64_t> offsets(sizes.size(), 0);
  std::vector<int64_t> chunk_sizes = sizes;
  // 5 over 4, split size 2: offsets 0 2 4 5, sizes 2 2 1 0.
  for (int64_t i = 0; i < count; ++i) {
    chunk_sizes[dim] = get_chunked_dim_size(sizes[dim], split_size, i);
    metadata.shards_metadata.emplace_back(
        offsets, chunk_sizes, placements_[static_cast<size_t>(i)]);
    offsets[dim] += chunk_sizes[dim];
  }
  return metadata;
}

ShardingSpecPtr ChunkShardingSpec::clone() const {
  return std::make_shared<ChunkShardingSpec>(*this);
}

bool ChunkShardingSpec::equals(const ShardingSpec& other) const {
  if (typeid(*this) != typeid(other)) {
    return false;
  }
  const auto& that = static_cast<const ChunkShardingSpec&>(other);
  return dim_ == that.dim_ && placements_ == that.placements_;
}

EnumerableShardingSpec::EnumerableShardingSpec(
    std::vector<ShardMetadata> shards)
    : shards_(std::move(shards)) {
  TORCH_CHECK_VALUE(
      !shards_.empty(),
      "EnumerableShardingSpec: at least one shard is needed; got none");
  for (const ShardMetadata& shard : shards_) {
    TORCH_CHECK_VALUE(
        shard.shard_sizes.size() == shards_[0].shard_sizes.size(),
        "EnumerableShardingSpec: shards have as many dims as each other; got ",
        to_string(shards_[0]), " and ", to_string(shard));
  }
  validate_non_overlapping_shards_metadata(shards_);
}

ShardedTensorMetadata EnumerableShardingSpec::build_metadata(
    const std::vector<int64_t>& sizes,
    const TensorProperties& properties) const {
  check_tensor(shards_, sizes);
  return {
      .shards_metadata = shards_,
      .size = sizes,
      .tensor_properties = properties};
}

ShardingSpecPtr EnumerableShardingSpec::clone() const {
  return std::make_shared<EnumerableShardingSpec>(*this);
}

bool EnumerableShardingSpec::equals(const ShardingSpec& other) const {
  return typeid(*this) == typeid(other) &&
         same_shards(
             shards_,
             static_cast<const EnumerableShardingSpec&>(other).shards_);
}

std::string to_string(const ShardingSpec& spec) {
  if (const auto* chunk = dynamic_cast<const ChunkShardingSpec*>(&spec)) {
    return c10::str(
        spec.name(), "(", chunk->dim(), ", [",
        base::join(chunk->placements(), ", "), "])");
  }
  if (const auto* list = dynamic_cast<const EnumerableShardingSpec*>(&spec)) {
    return spec.name() + "([" + base::join(list->shards(), ", ") + "])";
  }
  return spec.name();
}

std::ostream& operator<<(std::ostream& out, const ShardingSpec& spec) {
  return out << to_string(spec);
}

}  // namespace tessera::sharded_tensor
