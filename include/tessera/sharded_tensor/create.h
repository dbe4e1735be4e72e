// Ways to make a sharded tensor: of values, of existing shards, of a tensor
// that one rank has.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>
#include <tessera/export.h>
#include <tessera/sharded_tensor/sharded_tensor.h>

namespace tessera::sharded_tensor {

// Existing data.

/// Makes a tensor of the shards that each rank of the group has. Collective:
/// one exchange of metadata. The spec is inferred.
/// Example: init_from_local_shards({shard}, {10, 20}).
TESSERA_API ShardedTensor init_from_local_shards(
    std::vector<Shard> local_shards, const std::vector<int64_t>& sizes,
    const ShardedTensorOptions& options = {});
/// The same where nobody knows the global sizes: rows are counted together, in
/// the order of the group. Exactly one shard per rank; its offsets are ignored.
/// Example: init_from_local_shards({shard}, std::nullopt).
TESSERA_API ShardedTensor init_from_local_shards(
    std::vector<Shard> local_shards, std::nullopt_t sizes,
    const ShardedTensorOptions& options = {});
/// Makes a tensor of shards and the metadata of all; no communication.
TESSERA_API ShardedTensor init_from_local_shards_and_global_metadata(
    std::vector<Shard> local_shards, const ShardedTensorMetadata& metadata,
    const ShardedTensorOptions& options = {}, ShardingSpecPtr spec = nullptr);
/// Makes a tensor of which `tensor` is this rank's only shard; ignored on a
/// rank that has none. No communication.
TESSERA_API ShardedTensor init_from_local_tensor(
    const at::Tensor& tensor, const ShardingSpec& spec,
    const std::vector<int64_t>& sizes,
    const ShardedTensorOptions& options = {});

/// Cuts the tensor that `src_rank`, a rank of the group, holds. Collective;
/// `src_rank`, spec, size and dtype must be equal on all ranks.
/// Example: shard_tensor(weight, ChunkShardingSpec(0, places)).
TESSERA_API ShardedTensor shard_tensor(
    const at::Tensor& tensor, const ShardingSpec& spec, int64_t src_rank = 0,
    const ProcessGroup& group = {});

// Creation: the constructor, then values. Random values are those of one rank
// that makes the whole tensor (tessera/tensor/random.h).

TESSERA_API ShardedTensor empty(
    const ShardingSpec& spec, const std::vector<int64_t>& sizes,
    const ShardedTensorOptions& options = {});
TESSERA_API ShardedTensor zeros(
    const ShardingSpec& spec, const std::vector<int64_t>& sizes,
    const ShardedTensorOptions& options = {});
TESSERA_API ShardedTensor ones(
    const ShardingSpec& spec, const std::vector<int64_t>& sizes,
    const ShardedTensorOptions& options = {});
TESSERA_API ShardedTensor full(
    const ShardingSpec& spec, const std::vector<int64_t>& sizes,
    const c10::Scalar& value, const ShardedTensorOptions& options = {});
/// Uniform in [0, 1).
TESSERA_API ShardedTensor rand(
    const ShardingSpec& spec, const std::vector<int64_t>& sizes,
    const ShardedTensorOptions& options = {});
/// Normal with mean 0 and variance 1.
TESSERA_API ShardedTensor randn(
    const ShardingSpec& spec, const std::vector<int64_t>& sizes,
    const ShardedTensorOptions& options = {});

}  // namespace tessera::sharded_tensor
