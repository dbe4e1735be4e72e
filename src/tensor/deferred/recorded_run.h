// Running a call on Meta, and writing down what it did.
#pragma once

#include <tensor/call/op_call.h>

namespace tessera::detail::inline tensor_layer {

/// Makes the arguments of a call those that LibTorch runs on Meta: there is no
/// pinned memory there.
void ask_for_meta(const OpCall& call);

/// Runs a call for its shapes. It becomes part of the tape of every storage
/// that it makes, whose values will lie on `device`, or writes. A call that
/// needs values is an error.
void run_recorded_on_meta(const OpCall& call, const c10::Device& device);

}  // namespace tessera::detail::inline tensor_layer
