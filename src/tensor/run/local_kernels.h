// The kernels of rows that are not run by the operator.
#pragma once

#include <tensor/call/op_registry.h>

namespace tessera::detail::inline tensor_layer {

/// Adds them to the registry.
void add_local_kernels(OpRegistry& ops);

}  // namespace tessera::detail::inline tensor_layer
