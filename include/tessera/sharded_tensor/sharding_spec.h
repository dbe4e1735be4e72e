// ShardingSpec: how a tensor is cut and who holds what, before there is one.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <tessera/export.h>
#include <tessera/sharded_tensor/metadata.h>
#include <tessera/sharded_tensor/process_group.h>
#include <tessera/sharded_tensor/remote_device.h>

namespace tessera::sharded_tensor {

class ShardedTensor;

/// Where an entity lives; the base of such descriptions.
class TESSERA_API PlacementSpec {
 public:
  virtual ~PlacementSpec() = default;
};

/// An entity on one device. Example: DevicePlacementSpec("rank:0/cuda:0").
class TESSERA_API DevicePlacementSpec : public PlacementSpec {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): a place is what it says
  DevicePlacementSpec(RemoteDevice where) : device(std::move(where)) {}
  RemoteDevice device;
  friend bool operator==(
      const DevicePlacementSpec& a, const DevicePlacementSpec& b) {
    return a.device == b.device;
  }
};

/// How a tensor is cut into shards; users derive their own. Specs are immutable
/// values: functions take them by reference and keep a clone().
class TESSERA_API ShardingSpec {
 public:
  virtual ~ShardingSpec() = default;
  /// Returns the shards of a tensor of `sizes`; pure, no communication. Throws
  /// where the spec does not fit.
  virtual ShardedTensorMetadata build_metadata(
      const std::vector<int64_t>& sizes,
      const TensorProperties& properties) const = 0;
  /// Cuts the tensor that `src_rank`, a rank of the group, holds. Collective;
  /// the tensors of other ranks give their size and properties only. The base
  /// sends to each rank what build_metadata() says.
  virtual ShardedTensor shard(
      const at::Tensor& tensor, int64_t src_rank = 0,
      const ProcessGroup& group = {}) const;
  virtual std::shared_ptr<const ShardingSpec> clone() const = 0;
  /// Compares; the base compares addresses.
  virtual bool equals(const ShardingSpec& other) const {
    return this == &other;
  }
  /// Returns what serialize() writes and what the ranks of a group compare;
  /// register_sharding_spec() names what reads it. serialize() refuses a spec
  /// that returns nothing; a sharded tensor is then saved with the list of its
  /// shards.
  virtual std::string encode() const { return {}; }
  /// Returns the name of the type, for texts and for encode().
  virtual std::string name() const = 0;
};

inline bool operator==(const ShardingSpec& a, const ShardingSpec& b) {
  return a.equals(b);
}
using ShardingSpecPtr = std::shared_ptr<const ShardingSpec>;

/// Cuts one dim into ceil(n / k)-sized chunks, one per placement, in their
/// order; a rank may be listed several times or not at all.
/// Example: ChunkShardingSpec(0, {"rank:0/cpu", "rank:1/cpu"}).
class TESSERA_API ChunkShardingSpec : public ShardingSpec {
 public:
  ChunkShardingSpec(int64_t dim, std::vector<RemoteDevice> placements);
  /// Dims have no names: throws NotImplementedError.
  ChunkShardingSpec(
      const std::string& dim, const std::vector<RemoteDevice>& placements);

  /// Returns the dim as it was given; -1 is the last one.
  int64_t dim() const { return dim_; }
  const std::vector<RemoteDevice>& placements() const { return placements_; }

  ShardedTensorMetadata build_metadata(
      const std::vector<int64_t>& sizes,
      const TensorProperties& properties) const override;
  ShardingSpecPtr clone() const override;
  /// Compares dim and placements as they were given.
  bool equals(const ShardingSpec& other) const override;
  std::string encode() const override;
  std::string name() const override { return "ChunkShardingSpec"; }

 private:
  int64_t dim_;
  std::vector<RemoteDevice> placements_;
};

/// Lists every shard: grids, other tilings, several shards per rank.
class TESSERA_API EnumerableShardingSpec : public ShardingSpec {
 public:
  /// Throws for an empty list, shards of different rank, or an overlap.
  explicit EnumerableShardingSpec(std::vector<ShardMetadata> shards);

  const std::vector<ShardMetadata>& shards() const { return shards_; }

  /// Throws unless the shards cover `sizes` exactly.
  ShardedTensorMetadata build_metadata(
      const std::vector<int64_t>& sizes,
      const TensorProperties& properties) const override;
  ShardingSpecPtr clone() const override;
  /// Compares the shards, in any order.
  bool equals(const ShardingSpec& other) const override;
  std::string encode() const override;
  std::string name() const override { return "EnumerableShardingSpec"; }

 private:
  std::vector<ShardMetadata> shards_;
};

/// Names the decoder of a user's spec, so that deserialize<ShardingSpecPtr>()
/// makes one of what its encode() returned. A second decoder of one name, and
/// the name of a built-in spec, are errors.
TESSERA_API void register_sharding_spec(
    const std::string& name,
    std::function<ShardingSpecPtr(const std::string&)> decode);

/// Prints "ChunkShardingSpec(0, [rank:0/cpu, rank:1/cpu])" and the like.
TESSERA_API std::string to_string(const ShardingSpec& spec);
TESSERA_API std::ostream& operator<<(
    std::ostream& out, const ShardingSpec& spec);

/// Returns the spec that a list of shards came from: chunks where they are
/// ceil chunks of one dim in several places, else the list itself.
TESSERA_API ShardingSpecPtr infer_sharding_spec_from_shards_metadata(
    const std::vector<ShardMetadata>& shards);

/// Returns ceil(n / chunks). 11 / 4 -> 3. Throws for chunks < 1.
TESSERA_API int64_t get_split_size(int64_t n, int64_t chunks);
/// Returns the size of chunk i. 11 / 4 (split 3): 3, 3, 3, 2. Throws for a
/// negative argument.
TESSERA_API int64_t
get_chunked_dim_size(int64_t n, int64_t split_size, int64_t i);
/// Returns start and size of the chunk that `rank` holds of a dim of size n;
/// throws where it holds none.
TESSERA_API std::pair<int64_t, int64_t> get_chunk_sharding_params(
    int64_t n, int64_t world_size, const ChunkShardingSpec& spec, int64_t rank);
/// Throws where two shards share an element.
TESSERA_API void validate_non_overlapping_shards_metadata(
    const std::vector<ShardMetadata>& shards);
/// Throws unless the shards have the tensor's rank, lie inside it and have as
/// many elements; with the check above, they then cover it. An empty shard may
/// lie at or behind the end.
TESSERA_API void check_tensor(
    const std::vector<ShardMetadata>& shards,
    const std::vector<int64_t>& sizes);
/// Returns the part of a tensor that a shard's box says, sharing its memory.
/// Throws where the box leaves the tensor; an empty one may lie behind the end.
TESSERA_API at::Tensor narrow_tensor(
    const at::Tensor& tensor, const ShardMetadata& metadata);

}  // namespace tessera::sharded_tensor
