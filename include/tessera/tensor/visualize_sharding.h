// Pictures of sharded tensors; how they look stands in
// layout/visualize_sharding.h.
#pragma once

#include <string>

#include <ATen/core/Tensor.h>
#include <tessera/layout/visualize_sharding.h>
#include <tessera/tensor/dtensor.h>

namespace tessera {

/// Draws which ranks hold which part of a sharded tensor. No rank is asked: all
/// know the layout, and each of them returns the same text. A tensor that is
/// not sharded is an error. Example: visualize_sharding(distribute_tensor(w,
/// mesh, {Shard(0)})).
inline std::string visualize_sharding(
    const at::Tensor& tensor, const VisualizeOptions& options = {}) {
  return visualize_sharding(spec(tensor).layout(), options);
}

}  // namespace tessera
