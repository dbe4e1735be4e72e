// The ways in which a call on sharded tensors can be run.
#pragma once

#include <tensor/call/decision.h>

namespace tessera::detail {

/// Decides a call and runs it, whether or not it has a kernel of its own.
void run_general(const OpCall& call, const OpTraits& traits);

/// Runs a call as decided; this rank is in the mesh.
void run_decided(
    const OpCall& call, const OpTraits& traits, const Decision& decision);

/// Runs a direct decision: no tensor of the call is on its way or a view into
/// a copy. This is the path of a call that was met before.
void run_direct(
    const OpCall& call, const OpTraits& traits, const Decision& decision);

/// Gives _reshape_alias on a shard the strides that follow from the shard's
/// memory, which need not lie as the global strides say; throws where none do.
/// Other calls stay as they are.
void fit_view_strides(const OpCall& call);

/// Gives the results of a call their specs on a rank outside the mesh, which
/// holds no data and takes no part.
void run_outside(const OpCall& call, const OpTraits& traits);
/// The same where nothing may be computed, not even on zeros: throws for an
/// operator without a meta kernel. Arguments and results have no data.
void run_for_specs(const OpCall& call, const OpTraits& traits);

/// Makes a tensor that has a spec and no data, for run_for_specs().
at::Tensor wrap_without_data(
    const SpecPtr& spec, c10::Device device, Shown shown = {});

/// The same for a view of `source`.
at::Tensor view_without_data(
    const SpecPtr& spec, c10::Device device, const at::Tensor& source);

/// Returns the layout of a tensor that a call gave another shape: as before
/// where that still fits, Replicate where not.
Placements fitting_placements(const DTensorSpec& old, int64_t ndim);

/// Makes the gradient of a leaf arrive in the leaf's own placements.
void watch_leaf(const at::Tensor& t);

}  // namespace tessera::detail
