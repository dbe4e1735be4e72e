// Who calls are shown to instead of being run; see inspect/dry_run.h.
#pragma once

#include <tensor/call/moves.h>
#include <tensor/state/thread_state.h>

namespace tessera::detail::inline tensor_layer {

class CallObserver {
 public:
  CallObserver() = default;
  virtual ~CallObserver() = default;
  CallObserver(const CallObserver&) = delete;
  CallObserver& operator=(const CallObserver&) = delete;

  /// Notes a call, and leaves results without data on its stack.
  virtual void take(const OpCall& call, const OpTraits& traits) = 0;
  /// Adds a move to the call that was noted last: of a decomposition, which
  /// moves what it needs by itself.
  virtual void add(Move move) = 0;
  /// Notes a call that goes on by values, and ends the run.
  [[noreturn]] virtual void stop_at_values(
      const OpCall& call, const MoveList& moves) = 0;

  /// Returns this thread's, or nullptr.
  static CallObserver* current() { return ThreadState::here().observer; }
};

}  // namespace tessera::detail::inline tensor_layer
