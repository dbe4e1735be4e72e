// The families of decompositions.
#pragma once

#include <tensor/call/op_registry.h>

namespace tessera::detail::inline tensor_layer {

/// Adds the decompositions of all families.
void add_decompositions(OpRegistry& ops);

/// Tells whether a mesh dim of several ranks cuts one of the dims of operand 0
/// that the call names in "dim" (all where it names none).
bool shards_named_dim(const RuleCall& call);

}  // namespace tessera::detail::inline tensor_layer
