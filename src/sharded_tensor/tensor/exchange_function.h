// Moves shards between specs; gradients move back.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>
#include <tessera/comm/communicator.h>
#include <tessera/layout/box_layout.h>

namespace tessera::detail::inline sharded_tensor_layer {

/// This rank's tensors of a tiling, and its place in autograd's graph should it
/// have none (see ShardedTensorState::anchor).
struct Shards {
  std::vector<at::Tensor> tensors;
  at::Tensor anchor;
};

/// Returns the shards of `target`, given those of `source`: exchange_boxes()
/// with a derivative, which is the exchange back. Where a rank records it, all
/// do: every rank must then run backward through its shards or its anchor.
Shards exchange_shards(
    const Shards& shards, const BoxLayout& source, const BoxLayout& target,
    const Communicator& group);

}  // namespace tessera::detail::inline sharded_tensor_layer
