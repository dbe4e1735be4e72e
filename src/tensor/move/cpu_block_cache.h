// Memory for shards that arrive.
//
// Note [Blocks are used again]
// A page that the system hands out fresh costs a fault on first touch, several
// times what filling it costs: a 16 MiB shard spends most of its redistribution
// there. So large CPU blocks are kept when their tensor dies and given to the
// next one of that size, as LibTorch does on GPUs. The process keeps at most
// 256 MiB of them, or TESSERA_BLOCK_CACHE_MIB; the oldest give way; 0 keeps
// none.
#pragma once

#include <ATen/core/Tensor.h>

namespace tessera::detail::inline tensor_layer {

/// Returns a contiguous tensor with undefined values, like at::empty(); a large
/// one on the CPU lies in a block that was used before, where there is one.
at::Tensor empty_cached(
    at::IntArrayRef sizes, const at::TensorOptions& options);

}  // namespace tessera::detail::inline tensor_layer
