// Runs calls on sharded tensors as they were decided. run_off_mesh.h keeps the
// same contract.
//
// All functions take the arguments from the stack of `call` and leave its
// results there. Arguments are not changed, those that the schema says are
// written aside. An exception leaves the stack as LibTorch's dispatcher expects
// it: unspecified. `call`, `traits` and `decision` need to live until the
// function returns only; results hold references of their own.
//
// Example: x.add_(y), x: f32[8] S(0), y: f32[8] R, mesh of 2 ranks. The stack
// holds (x, y, 1); run_decision() puts x's shard and a slice of y in their
// place, calls aten::add_ on them, and leaves (x).
#pragma once

#include <tensor/call/decision.h>

namespace tessera::detail::inline tensor_layer {

/// Decides a call and runs the decision, without a look at the cache and at
/// custom kernels.
void run_general(const OpCall& call, const OpTraits& traits);

/// Runs a decision of any strategy but kCustomKernel: redistributes inputs,
/// runs the operator or the rule's local kernel on shards, writes results back.
/// Precondition: this rank is in the mesh of the call.
void run_decision(
    const OpCall& call, const OpTraits& traits, const Decision& decision);

/// Runs a decision that moves nothing, as that of a call whose key was found in
/// the cache. Precondition: decision.is_direct, and the key is_simple(): every
/// shard is complete and its own, and has the placements of its plan.
void run_cached(
    const OpCall& call, const OpTraits& traits, const Decision& decision);

/// Returns the placements of a tensor that a call gave `ndim` dims: the old
/// ones, with Replicate in place of ragged shards and of shards of dims that it
/// no longer has.
Placements fitting_placements(const DTensorSpec& old, int64_t ndim);

}  // namespace tessera::detail::inline tensor_layer
