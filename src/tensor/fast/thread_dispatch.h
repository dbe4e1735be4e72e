// What dispatch keeps per thread, and how a kernel of ours finds it.
#pragma once

#include <c10/core/AutogradState.h>
#include <comm/engine/process/pending_calls.h>
#include <tensor/fast/decision_cache.h>
#include <tensor/move/plan_cache.h>
#include <tensor/state/late_operators.h>
#include <tensor/state/thread_state.h>

namespace tessera::detail::inline tensor_layer {

class ThreadDispatch final : public ThreadState {
 public:
  DispatchCache cache;

  /// Returns the traits of an operator, and forgets what is out of date.
  const OpTraits& traits_of(const c10::OperatorHandle& op) {
    return traits_of(op.schema(), op);
  }
  /// For kernels that know the schema: the handle's checks it each time.
  [[gnu::always_inline]] const OpTraits& traits_of(
      const c10::FunctionSchema& schema, const c10::OperatorHandle& op) {
    if (generation_ != current_generation()) {
      forget();
    }
    return traits_.find(schema, op);
  }

  void count_typed(int64_t calls_more) {
    calls += calls_more;
    typed_calls += calls_more;
  }

  void clear_decisions() override { cache.clear(); }
  size_t decision_count() const override { return cache.size(); }
  PlanCache& plans() override { return plans_; }
  const OpTraits& find_traits(const c10::OperatorHandle& op) override {
    return traits_of(op);
  }

  /// Every ThreadState is one: see make_thread_state().
  static ThreadDispatch& here() {
    return static_cast<ThreadDispatch&>(ThreadState::here());
  }

 private:
  static uint64_t current_generation() {
    return state_generation.load(std::memory_order_relaxed) +
           rules_generation.load(std::memory_order_acquire);
  }
  void forget();

  PlanCache plans_;
  TraitsCache traits_;
  uint64_t generation_ = 0;         // of the decisions
  uint64_t traits_generation_ = 0;  // of the traits
};

/// What every kernel of ours does first.
[[gnu::always_inline]] inline ThreadDispatch& enter_kernel() {
  ensure_registered();
  if (pending_calls.load(std::memory_order_relaxed) != 0) [[unlikely]] {
    advance_calls_now_and_then();
  }
  return ThreadDispatch::here();
}

/// What kernels of views do: in-place writes on views corrupt gradients unless
/// views are replayed. The switch is per thread, and users start threads too.
inline void record_views() {
  c10::AutogradState::get_tls_state().set_view_replay_enabled(true);
}

}  // namespace tessera::detail::inline tensor_layer
