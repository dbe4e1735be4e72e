// from_local()'s run_check: do the ranks mean the same tensor?
#pragma once

#include <ATen/core/Tensor.h>
#include <tessera/tensor/dtensor_spec.h>

namespace tessera::detail::inline tensor_layer {

/// Throws on every rank of the mesh when dtype, global shape, strides, layout
/// or requires_grad differ between ranks, or when shards that should be equal
/// are not.
void check_agreement(const at::Tensor& local, const SpecPtr& spec);

}  // namespace tessera::detail::inline tensor_layer
