// Recording the calls that make deferred tensors.
#pragma once

#include <tensor/deferred/tape.h>

namespace tessera::detail::inline tensor_layer {

/// Begins or ends a DeferredInit on this thread; they nest.
void begin_deferral();
void end_deferral();

/// Records a call of which a deferred tensor is an argument or, under a
/// DeferredInit, comes out; returns false, and does nothing, for all others. A
/// deferred tensor that is used after its guard ended is an error. The
/// arguments lie on the stack, and the results after it.
bool record_call(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace tessera::detail::inline tensor_layer
