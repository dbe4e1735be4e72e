// Slices of a tensor, known by how they lie in its memory.
#pragma once

#include <optional>
#include <vector>

#include <tensor/deferred/tape.h>
#include <tessera/layout/box.h>

namespace tessera::detail::inline tensor_layer {

/// A tensor that shows a box of another one, dims permuted or left out.
/// Example: of w[8, 6] in row-major order, w[2] (sizes [6], strides [1], offset
/// 12) is the box [2:3, 0:6], its dim 0 being dim 1 of w.
struct SlicedRegion {
  Box box;
  /// The dim of the whole that a dim of the slice runs along; -1 where it has
  /// one element and may be any.
  std::vector<int64_t> dims;
};

/// Returns where a slice lies in a dense tensor; nothing where it is no box of
/// it, or its elements are not neighbours.
std::optional<SlicedRegion> find_region(
    const Geometry& slice, const Geometry& tensor);

}  // namespace tessera::detail::inline tensor_layer
