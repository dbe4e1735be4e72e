// The kernels that LibTorch's dispatcher calls for sharded tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace tessera::detail::inline tensor_layer {

/// Runs an operator that is not made of others; see Note [A call that was met
/// before].
void backend_kernel(
    const c10::OperatorHandle& op, c10::DispatchKeySet keys,
    torch::jit::Stack* stack);

/// Runs an operator that ATen makes of others.
void composite_kernel(
    const c10::OperatorHandle& op, c10::DispatchKeySet keys,
    torch::jit::Stack* stack);
/// Passes operators without an autograd kernel on; a late one gets its backend
/// kernel on the way.
void autograd_fallback(
    const c10::OperatorHandle& op, c10::DispatchKeySet keys,
    torch::jit::Stack* stack);
/// The autograd of as_strided().
void as_strided_autograd(
    const c10::OperatorHandle& op, c10::DispatchKeySet keys,
    torch::jit::Stack* stack);

/// Tells that set_data() may give a sharded tensor the place of another.
bool shallow_copy_kernel(const at::Tensor& self, const at::Tensor& from);

}  // namespace tessera::detail::inline tensor_layer
