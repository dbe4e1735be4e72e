// The count of gathers: see call/gathers.h for what one is.
#pragma once

#include <vector>

#include <tensor/call/decision.h>
#include <tensor/call/moves.h>

namespace tessera::detail::inline tensor_layer {

/// Counts what a decided call is about to gather on this rank, and warns where
/// it is the operator's first. Fallbacks warn in their own words.
void count_gathers(
    const OpCall& call, const OpTraits& traits, const Decision& decision);
/// The same for moves that a call makes beside what decide() says.
void count_gathers(const OpCall& call, const std::vector<Move>& moves);

}  // namespace tessera::detail::inline tensor_layer
