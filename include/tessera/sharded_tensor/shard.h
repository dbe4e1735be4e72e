// Shard: one shard's data and metadata.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>
#include <tessera/export.h>
#include <tessera/sharded_tensor/metadata.h>

namespace tessera::sharded_tensor {

/// A tensor and the box of the global tensor that it holds. Not to be confused
/// with the placement tessera::Shard(dim).
struct TESSERA_API Shard {
  /// Throws unless sizes and, where there is a placement, devices agree.
  Shard(at::Tensor data, ShardMetadata about);
  /// Takes sizes and device from the tensor; `rank` is the global rank that
  /// holds it. Example: Shard::from_tensor_and_offsets(t, {4, 0}, 1).
  static Shard from_tensor_and_offsets(
      const at::Tensor& tensor, std::vector<int64_t> offsets, int64_t rank);

  at::Tensor tensor;
  ShardMetadata metadata;
};

}  // namespace tessera::sharded_tensor
