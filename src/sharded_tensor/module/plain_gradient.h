// Gradients of parameters that a plan leaves plain.
#pragma once

#include <ATen/core/Tensor.h>

namespace tessera::detail::inline sharded_tensor_layer {

/// Makes gradients that reach a plain leaf plain, so that optimizers can use
/// them: the global value, zeros on a rank outside of the mesh. Nothing happens
/// where that was said before.
void keep_gradient_plain(const at::Tensor& leaf);
/// Returns a plain tensor as another one, whose gradient arrives plain.
at::Tensor with_plain_gradient(const at::Tensor& tensor);

}  // namespace tessera::detail::inline sharded_tensor_layer
