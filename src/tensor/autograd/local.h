// Plain tensors that become sharded ones, and the way back; see
// tessera/tensor/dtensor.h.
#pragma once

#include <ATen/core/Tensor.h>
#include <tensor/state/spec_fwd.h>

namespace tessera::detail::inline tensor_layer {

/// Returns a result of ATen's own decomposition as a sharded tensor. A plain
/// one was made there, of values that all ranks read, and is equal on all of
/// them.
at::Tensor as_replicated(const at::Tensor& result, const DeviceMesh& mesh);

}  // namespace tessera::detail::inline tensor_layer
