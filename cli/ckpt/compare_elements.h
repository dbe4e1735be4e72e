// How far elements of two tensors are apart, by their dtype.
#pragma once

#include <cstddef>
#include <cstdint>

#include <io/model/dtype.h>

namespace tessera::cli {

/// What holds over all elements compared so far. Elements are equal where their
/// bits are.
struct ElementDifference {
  int64_t different = 0;
  int64_t first = -1;  // row-major; -1: none is different
  /// The largest |a - b|: of integers and bools exactly, in `largest_integer`,
  /// of other types in `largest`.
  uint64_t largest_integer = 0;
  double largest = 0;
  /// Pairs of which one is a NaN and the other is not; they have no difference.
  int64_t nan_on_one_side = 0;
};

/// Tells whether differences of a dtype are integers.
bool has_integer_difference(io::Dtype dtype);

/// Compares `count` elements, the first of which has the number `begin`.
void compare_elements(
    io::Dtype dtype, const void* a, const void* b, size_t count, int64_t begin,
    ElementDifference& difference);

}  // namespace tessera::cli
