// The ways in which a call on sharded tensors can be run.
#pragma once

#include <tensor/op_traits.h>

namespace tessera::detail {

/// Runs an elementwise call on the shards as they are, where all tensors have
/// one layout; returns whether it did.
bool run_on_shards(const OpCall& call, const OpTraits& traits);

/// Gathers every argument, runs the call on the whole values, and cuts what was
/// written back into its shards. Always right; new results are replicated.
void run_replicated(const OpCall& call, const OpTraits& traits);

/// Gives the results of a call their specs on a rank outside the mesh, which
/// holds no data and takes no part.
void run_outside(const OpCall& call, const OpTraits& traits);

/// Returns the layout of a tensor that a call gave another shape: as before
/// where that still fits, Replicate where not.
Placements fitting_placements(const DTensorSpec& old, int64_t ndim);

/// Makes the gradient of a leaf arrive in the leaf's own placements.
void watch_leaf(const at::Tensor& t);

}  // namespace tessera::detail
