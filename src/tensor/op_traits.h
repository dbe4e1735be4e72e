// What the dispatcher needs to know about an operator, found out once.
#pragma once

#include <tensor/op_call.h>

namespace tessera::detail {

/// Runs a call by itself: takes the arguments off the stack and leaves the
/// results.
using SpecialKernel = void (*)(const OpCall&);

class MoveList;
/// Lists what such a kernel will move.
using SpecialMoves = void (*)(const OpCall&, MoveList&);

struct OpTraits {
  /// The result shows memory of the first argument.
  bool is_view = false;
  /// Results depend on a generator.
  bool is_random = false;
  /// Element i of each result depends on elements i of the arguments only, so
  /// tensors of one layout can stay as they are.
  bool is_elementwise = false;
  /// Holds for Partial tensors too.
  bool passes_partial = false;
  /// Bit i: the kernel writes argument i, though its schema does not say so.
  uint64_t unsaid_writes = 0;
  /// The special kernel reads and writes no element, so it runs on ranks
  /// without data too.
  bool needs_no_data = false;
  SpecialKernel special = nullptr;
  /// Not set where the special kernel moves nothing.
  SpecialMoves special_moves = nullptr;
};

/// Returns the traits of an operator.
const OpTraits& traits_of(const c10::OperatorHandle& op);
/// Drops what is known, since an operator was removed.
void forget_traits();

/// Fills in the special kernel of an operator that no general way serves.
void find_special(const c10::OperatorName& name, OpTraits& traits);

}  // namespace tessera::detail
