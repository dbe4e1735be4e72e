// Integer arithmetic that cannot overflow silently.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace tessera::detail::inline layout_layer {

/// Returns a / b rounded up; a >= 0, b > 0.
inline int64_t ceil_div(int64_t a, int64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

/// Returns offset + size, or the largest number where that is beyond 64 bits.
inline int64_t end_of(int64_t offset, int64_t size) {
  int64_t end = 0;
  if (__builtin_add_overflow(offset, size, &end)) {
    return std::numeric_limits<int64_t>::max();
  }
  return end;
}

/// Returns the product of sizes >= 0, or nothing when it exceeds int64_t. A
/// zero makes the product 0, whatever stands beside it.
inline std::optional<int64_t> checked_product(
    const std::vector<int64_t>& sizes) {
  int64_t product = 1;
  bool overflow = false;
  for (int64_t size : sizes) {
    if (size == 0) {
      return 0;
    }
    overflow = overflow || __builtin_mul_overflow(product, size, &product);
  }
  if (overflow) {
    return std::nullopt;
  }
  return product;
}

/// Sets `digits` to the next element of the row-major product of `limits` and
/// returns true, or returns false after the last one.
inline bool next_row_major(
    std::vector<int64_t>& digits, const std::vector<int64_t>& limits) {
  for (size_t d = digits.size(); d-- > 0;) {
    if (++digits[d] < limits[d]) {
      return true;
    }
    digits[d] = 0;
  }
  return false;
}

}  // namespace tessera::detail::inline layout_layer
