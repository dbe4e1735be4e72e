// The table of moves: which states one step leads to.
#pragma once

#include <vector>

#include <tessera/plan/step.h>

#include "plan/states.h"

namespace tessera::detail {

/// A step without its price: mesh dims first .. last.
struct Move {
  StepKind kind;
  int64_t first;
  int64_t last;
  State to;
};

/// Returns every move from a state but the exchange, in a fixed order:
///   cut -> R all_gather   cut -> cut all_to_all   R -> cut cut
///   P -> R all_reduce     P -> cut reduce_scatter R -> P to_partial
/// on one mesh dim; all_gather, all_reduce and reduce_scatter also over
/// neighbouring mesh dims; and all remaining cuts of the target at once.
std::vector<Move> moves_from(const States& states, State s);

/// Returns what an exchange from `s` leads to: the target, Replicate in the
/// place of partials that `s` has not; nothing where `s` has a partial to
/// reduce first.
std::optional<State> exchange_from(const States& states, State s);

}  // namespace tessera::detail
