// Runs a cached decision that moves nothing.
#pragma once

#include <tensor/call/decision.h>

namespace tessera::detail::inline tensor_layer {

/// Runs a decision that moves nothing: the path of a call whose key was found
/// in the cache. Precondition: decision.is_direct, and the key of this call
/// is_simple() (no move pending, no view into a copy); this rank is in the
/// mesh.
void run_cached(
    const OpCall& call, const OpTraits& traits, const Decision& decision);

}  // namespace tessera::detail::inline tensor_layer
