// What a thread keeps between calls on sharded tensors.
//
// The one thread_local pointer that every call reads is here, below all that it
// leads to: fast/thread_dispatch.h adds what dispatch keeps. Modes that users
// switch on are elsewhere, since they hold in backward passes on other threads:
// comm/engine/inherited_modes.h.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <tensor/state/wrapper_pools.h>

namespace c10 {
class OperatorHandle;
}  // namespace c10

namespace tessera::detail::inline tensor_layer {

class CallObserver;
class PlanCache;
struct Draws;
struct OpTraits;

/// How many guards of a thread take plain tensors for replicated.
struct ReplicationDepth {
  int all = 0;
  int users = 0;  // those of them that are an ImplicitReplication
};

class ThreadState {
 public:
  ThreadState() = default;
  virtual ~ThreadState() = default;
  ThreadState(const ThreadState&) = delete;
  ThreadState& operator=(const ThreadState&) = delete;

  /// Calls that reached our kernels.
  int64_t calls = 0;
  /// Those of them that needed no stack.
  int64_t typed_calls = 0;
  /// Calls that were decided.
  int64_t decided_calls = 0;
  /// Set while calls are noted down instead of run.
  CallObserver* observer = nullptr;
  ReplicationDepth replication;
  /// How many DeferredInit guards it has.
  int deferrals = 0;
  /// Set while a recorded call takes or gives its draws: see draws.h.
  Draws* draws = nullptr;
  /// Memory of wrappers that were destroyed on this thread: see wrap.h.
  WrapperPools pools;

  /// Forgets the decisions about calls.
  virtual void clear_decisions() = 0;
  virtual size_t decision_count() const = 0;
  virtual PlanCache& plans() = 0;
  /// Returns the traits of an operator, and forgets what is out of date.
  virtual const OpTraits& find_traits(const c10::OperatorHandle& op) = 0;

  static ThreadState& here() { return mine != nullptr ? *mine : make(); }

 private:
  // A plain pointer that every call reads: as part of the thread's own block
  // of memory it costs one instruction. Few bytes are left there for libraries
  // that a program loads late, so nothing else of ours asks for them.
  static constinit thread_local ThreadState* mine
      __attribute__((tls_model("initial-exec")));
  struct Owner;
  static ThreadState& make();
  static Owner* make_late_owner();
};

/// Makes all threads forget the decisions about calls, each before its next.
void forget_all_decisions();
/// Grows when all threads must look at what they keep: with the above, and
/// where an operator is removed.
extern std::atomic<uint64_t> state_generation;

/// Makes the state of a new thread; defined where all that it keeps is known.
std::unique_ptr<ThreadState> make_thread_state();

}  // namespace tessera::detail::inline tensor_layer
