// Operators that no row can serve where a dim that they work along is cut, and
// that other operators express: a softmax is a maximum, a sum and a quotient.
//
// A rule keeps the rows for all other dims; a decomposition is taken where it
// applies, and runs on sharded tensors, so that each of its calls is decided,
// logged and explained by itself.
#pragma once

#include <rules/rule_entry.h>
#include <tensor/call/op_call.h>

namespace tessera::detail::inline tensor_layer {

struct Decomposition {
  /// Tells whether to take it for a call; every rank must say the same.
  bool (*applies)(const RuleCall&);
  /// Takes the arguments off the stack and leaves the results; runs below
  /// autograd, on sharded tensors.
  void (*run)(const OpCall&);
  /// Tells whether it sends no more than the rows of the rule would; not set
  /// where that is always so. Every rank must say the same.
  bool (*pays)(const RuleCall&, const MeshShape&) = nullptr;
};

}  // namespace tessera::detail::inline tensor_layer
