// The short way of a call that was met before and moves nothing.
#pragma once

#include <tensor/call/decision.h>

namespace tessera::detail {

/// Runs a direct decision: no tensor of the call is on its way or a view into
/// a copy. This is the path of a call that was met before.
void run_cached(
    const OpCall& call, const OpTraits& traits, const Decision& decision);

}  // namespace tessera::detail
