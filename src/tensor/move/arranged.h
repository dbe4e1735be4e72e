// Shards in the strides that they must have.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_strided.h>

namespace tessera::detail::inline tensor_layer {

/// Returns a shard with these strides: itself, or a copy.
inline at::Tensor arranged(
    const at::Tensor& shard, const std::vector<int64_t>& strides) {
  return shard.strides() == at::IntArrayRef(strides)
             ? shard
             : at::empty_strided(shard.sizes(), strides, shard.options())
                   .copy_(shard);
}

}  // namespace tessera::detail::inline tensor_layer
