// From an operator's name and a list of values to a call.
#pragma once

#include <string>
#include <vector>

#include <tensor/call/op_call.h>

namespace tessera::detail::inline tensor_layer {

/// An operator and its arguments, defaults filled in.
struct BoundCall {
  c10::OperatorHandle op;
  torch::jit::Stack stack;
};

/// Finds the operator "aten::add.Tensor"; "aten::" and the overload may be left
/// out. An error, which `call` begins, where no overload takes the arguments,
/// or several do.
BoundCall bind_arguments(
    const std::string& call, const std::string& name,
    const std::vector<c10::IValue>& arguments);

}  // namespace tessera::detail::inline tensor_layer
