// Operators that no general way serves.
#pragma once

#include <tensor/call/op_registry.h>

namespace tessera::detail::inline tensor_layer {

/// Adds the operators that neither a rule nor a decomposition serves.
void add_custom_kernels(OpRegistry& ops);

}  // namespace tessera::detail::inline tensor_layer
