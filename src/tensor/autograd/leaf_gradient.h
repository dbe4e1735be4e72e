// Gradients of leaves: see Note [Gradients of leaves].
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

namespace tessera::detail::inline tensor_layer {

/// Leaves gradients that arrive at a leaf as partial values in one mesh dim as
/// they are, instead of summing them up; nothing ends that.
void keep_unreduced(const at::Tensor& leaf, std::optional<int64_t> mesh_dim);

/// Installs the hook that brings the gradient of a leaf to the leaf's own
/// placements, once per leaf; other tensors are left alone.
void install_leaf_hook(const at::Tensor& t);

}  // namespace tessera::detail::inline tensor_layer
