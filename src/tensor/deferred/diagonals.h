// Recorded calls that know a diagonal, on boxes of their matrices.
#pragma once

#include <ATen/core/Tensor.h>
#include <tensor/deferred/tape.h>
#include <tessera/layout/box.h>

namespace tessera::detail::inline tensor_layer {

/// Tells whether a call is triu or tril of a deferred tensor.
bool is_triangle(const RecordedCall& call);
/// Returns what triu or tril makes of the box `mine` of its argument.
at::Tensor triangle_of_box(
    const RecordedCall& call, const at::Tensor& values, const Box& mine);

/// Tells whether a call makes ones on the diagonal and zeros elsewhere, of a
/// tensor that it makes or that has the right sizes before.
bool is_eye(const RecordedCall& call);
/// Writes the box `mine` of such a matrix.
void write_eye(const at::Tensor& values, const Box& mine);

}  // namespace tessera::detail::inline tensor_layer
