// The largest and smallest values of types.
#pragma once

#include <c10/core/Scalar.h>
#include <c10/core/ScalarType.h>

namespace tessera::detail::inline tensor_layer {

/// Returns the largest and smallest values of a type, infinite where they can
/// be.
at::Scalar smallest_value(c10::ScalarType dtype);
at::Scalar largest_value(c10::ScalarType dtype);

}  // namespace tessera::detail::inline tensor_layer
