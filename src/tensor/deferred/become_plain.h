// A deferred tensor that gets memory keeps its TensorImpl: all handles see it.
#pragma once

#include <ATen/core/Tensor.h>

namespace tessera::detail::inline tensor_layer {

/// Makes a deferred tensor one with the memory, shape and device of another;
/// whether it requires a gradient stays.
void become_plain(const at::Tensor& deferred, const at::Tensor& values);

}  // namespace tessera::detail::inline tensor_layer
