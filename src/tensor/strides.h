// Strides of dense tensors.
#pragma once

#include <cstdint>
#include <vector>

#include <c10/core/MemoryFormat.h>
#include <c10/util/ArrayRef.h>

namespace tessera::detail {

/// Returns row-major strides: [2, 3] -> [3, 1]. A dim of size 0 counts as 1,
/// as in ATen.
std::vector<int64_t> contiguous_strides(c10::IntArrayRef shape);

/// Returns the strides of a dense tensor whose dims lie in memory in the order
/// of `like`: [2, 3] like [1, 5] -> [1, 2].
std::vector<int64_t> dense_strides(
    c10::IntArrayRef shape, c10::IntArrayRef like);

/// Tells whether the elements fill their memory once, in any dim order.
bool is_dense(c10::IntArrayRef shape, c10::IntArrayRef strides);

/// Tells whether every element surely has memory of its own: each dim steps
/// over all that the dims with smaller strides reach. [2, 3] with strides
/// [4, 1]: yes; with [1, 1]: no.
bool is_non_overlapping(c10::IntArrayRef shape, c10::IntArrayRef strides);

/// Returns the strides of a dense copy in a memory format; `like` are those of
/// the source, which kPreserve keeps where they are dense.
std::vector<int64_t> strides_in_format(
    c10::IntArrayRef shape, c10::IntArrayRef like, c10::MemoryFormat format);

}  // namespace tessera::detail
