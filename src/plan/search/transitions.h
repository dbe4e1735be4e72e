// The table of moves: which states one step leads to.
#pragma once

#include <vector>

#include <tessera/plan/step.h>

#include "plan/search/states.h"

namespace tessera::detail::inline plan_layer {

/// A step without its price.
struct Transition {
  StepKind kind;
  State to;
};

/// Lists every move from a state but the exchange, in a fixed order:
///   cut -> R all_gather   cut -> cut all_to_all   R -> cut cut
///   P -> R all_reduce     P -> cut reduce_scatter R -> P to_partial
/// all_to_all on one mesh dim; all_gather, all_reduce and reduce_scatter also
/// over neighbouring mesh dims; cut and to_partial over any. A reduce_scatter
/// or cut over several mesh dims takes every choice and order of cuts in a wide
/// search. In a narrow one it takes cuts of one kind in mesh order or the
/// target's (reduce_scatter), or all that the target lacks (cut).
void transitions_from(
    const States& states, State s, std::vector<Transition>& transitions);

/// Returns what an exchange from `s` leads to: the target, Replicate in the
/// place of partials that `s` has not; nothing where `s` has a partial to
/// reduce first.
std::optional<State> exchange_from(const States& states, State s);

}  // namespace tessera::detail::inline plan_layer
