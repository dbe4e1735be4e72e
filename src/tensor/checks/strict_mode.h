// Where calls are held against the StrictMode of their thread.
#pragma once

#include <tensor/call/decision.h>
#include <tensor/call/moves.h>
#include <tessera/tensor/strict_mode.h>

namespace tessera::detail::inline tensor_layer {

/// Tells whether a StrictMode watches this thread, and no function that the
/// user called is at work.
bool is_strict();

/// Throws, or warns, when this thread's StrictMode forbids a call.
void check_strict(
    const OpCall& call, const OpTraits& traits, const Decision& decision);
/// The same for moves that a call makes beside what decide() says.
void check_strict(const OpCall& call, const std::vector<Move>& moves);
/// The same for a leaf's gradient that must change its placements.
void check_strict_gradient(const SpecPtr& gradient, const DTensorSpec& leaf);

/// Counts a fallback, and warns where it is the operator's first.
void count_fallback(const OpCall& call);

}  // namespace tessera::detail::inline tensor_layer
