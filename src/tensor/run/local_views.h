// How a rank shows its part of a view where the operator on the shard would
// show something else.
#pragma once

#include <vector>

#include <tensor/call/local_kernel.h>

namespace tessera::detail::inline tensor_layer {

/// squeeze, squeeze.dim: drops the dims of one index in the global tensor, not
/// those of which this rank happens to hold one.
void local_squeeze(const LocalKernelCall& local);

}  // namespace tessera::detail::inline tensor_layer
