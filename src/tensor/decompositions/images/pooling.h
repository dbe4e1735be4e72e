// What pools of windows of one size and adaptive ones share.
#pragma once

#include <tensor/decompositions/images/plane_indices.h>
#include <tensor/decompositions/windowed_call.h>

namespace tessera::detail::inline tensor_layer {

/// Returns the part of an image, whose first dim is `first`, that a rank's
/// windows read.
PlanePart plane_part(const Halo& halo, const DTensorSpec& self, size_t first);

/// Finishes the backward of a max pool: puts this rank's gradient of the result
/// where the maxima were, and sends it to the ranks that hold them. No value of
/// the operand is read.
void finish_max_backward(
    const DecomposedCall& decomposed, const WindowedCall& windows, size_t first,
    const at::Tensor& gradient, const at::Tensor& indices);

}  // namespace tessera::detail::inline tensor_layer
