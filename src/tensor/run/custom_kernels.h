// Operators that no general way serves.
#pragma once

#include <tensor/call/op_traits.h>

namespace tessera::detail {

/// Fills in the special kernel of an operator that no general way serves.
void find_custom_kernel(const c10::OperatorName& name, OpTraits& traits);

}  // namespace tessera::detail
