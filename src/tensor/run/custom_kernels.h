// Operators that no general way serves.
#pragma once

#include <tensor/call/op_traits.h>

namespace tessera::detail::inline tensor_layer {

/// Fills in the custom kernel of an operator that neither a rule nor a
/// decomposition serves.
void find_custom_kernel(const c10::OperatorName& name, OpTraits& traits);

}  // namespace tessera::detail::inline tensor_layer
