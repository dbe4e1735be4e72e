#include <tensor/state/value_limits.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

namespace tessera::detail::inline tensor_layer {

namespace {

struct IntegerBounds {
  c10::ScalarType dtype;
  int64_t smallest;
  int64_t largest;
};

template <class T>
constexpr IntegerBounds bounds_of(c10::ScalarType dtype) {
  return {dtype, std::numeric_limits<T>::min(), std::numeric_limits<T>::max()};
}

constexpr std::array kIntegerBounds{
    bounds_of<uint8_t>(at::kByte), bounds_of<int8_t>(at::kChar),
    bounds_of<int16_t>(at::kShort), bounds_of<int32_t>(at::kInt),
    bounds_of<int64_t>(at::kLong)};

/// Returns the bounds of an integer type, or nullptr.
const IntegerBounds* find_bounds(c10::ScalarType dtype) {
  const auto* found = std::find_if(
      kIntegerBounds.begin(), kIntegerBounds.end(),
      [dtype](const IntegerBounds& bounds) { return bounds.dtype == dtype; });
  return found == kIntegerBounds.end() ? nullptr : found;
}

}  // namespace

at::Scalar smallest_value(c10::ScalarType dtype) {
  if (dtype == at::kBool) {
    return false;
  }
  const IntegerBounds* bounds = find_bounds(dtype);
  return bounds != nullptr ? at::Scalar(bounds->smallest)
                           : -std::numeric_limits<double>::infinity();
}

at::Scalar largest_value(c10::ScalarType dtype) {
  if (dtype == at::kBool) {
    return true;
  }
  const IntegerBounds* bounds = find_bounds(dtype);
  return bounds != nullptr ? at::Scalar(bounds->largest)
                           : std::numeric_limits<double>::infinity();
}

}  // namespace tessera::detail::inline tensor_layer
