// Runs calls as they were decided.
#pragma once

#include <tensor/call/decision.h>

namespace tessera::detail {

/// Decides a call and runs it, whether or not it has a kernel of its own.
void run_general(const OpCall& call, const OpTraits& traits);

/// Runs a call as decided; this rank is in the mesh.
void run_decision(
    const OpCall& call, const OpTraits& traits, const Decision& decision);

/// Gives _reshape_alias on a shard the strides that follow from the shard's
/// memory, which need not lie as the global strides say; throws where none do.
/// Other calls stay as they are.
void fit_view_strides(const OpCall& call);

/// Returns the layout of a tensor that a call gave another shape: as before
/// where that still fits, Replicate where not.
Placements fitting_placements(const DTensorSpec& old, int64_t ndim);

}  // namespace tessera::detail
