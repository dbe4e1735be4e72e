// The ways in which a call on sharded tensors can be run.
#pragma once

#include <tensor/op_traits.h>

namespace tessera::detail {

/// Returns the argument of an elementwise call whose layout all tensors have,
/// so that it can run on the shards as they are; nullptr where there is none.
const at::Tensor* shared_layout(const OpCall& call, const OpTraits& traits);
/// Runs such a call; results have the layout of `reference`.
void run_on_shards(const OpCall& call, const at::Tensor& reference);

/// Gathers every argument, runs the call on the whole values, and cuts what was
/// written back into its shards. Always right; new results are replicated.
void run_replicated(const OpCall& call, const OpTraits& traits);

/// Gives the results of a call their specs on a rank outside the mesh, which
/// holds no data and takes no part.
void run_outside(const OpCall& call, const OpTraits& traits);
/// The same where nothing may be computed, not even on zeros: throws for an
/// operator without a meta kernel. Arguments and results have no data.
void run_for_specs(const OpCall& call, const OpTraits& traits);

/// Makes a tensor that has a spec and no data, for run_for_specs().
at::Tensor wrap_without_data(
    const SpecPtr& spec, c10::Device device,
    std::shared_ptr<Whole> whole = nullptr);

/// Returns the layout of a tensor that a call gave another shape: as before
/// where that still fits, Replicate where not.
Placements fitting_placements(const DTensorSpec& old, int64_t ndim);

/// Makes the gradient of a leaf arrive in the leaf's own placements.
void watch_leaf(const at::Tensor& t);

}  // namespace tessera::detail
