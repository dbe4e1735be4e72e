// What a forward depends on beside its inputs: random numbers and the modes of
// the thread.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/ThreadLocalState.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <comm/engine/random_counters.h>
#include <tensor/state/backward_pass.h>
#include <tensor/state/thread_state.h>

namespace tessera::detail::inline parallel_layer {

/// The state of a thread and its rank at the begin of a forward.
class ForwardState {
 public:
  /// Takes the generators of the CPU and of the tensors' devices.
  explicit ForwardState(const std::vector<at::Tensor>& tensors);

  /// Returns how many random numbers this rank drew since.
  uint64_t draws() const { return counters_->draws() - first_draw_; }

  /// Warns, once, where the forward that ends here may have drawn from the
  /// process's generator, which ranks that are threads share: nobody can go
  /// back to what it was for one of them.
  void warn_of_shared_generator() const;

  /// While it lives, the thread and its rank are in that state.
  class Restore {
   public:
    explicit Restore(const ForwardState& state);
    ~Restore();
    Restore(const Restore&) = delete;
    Restore& operator=(const Restore&) = delete;

   private:
    const ForwardState& state_;
    std::vector<std::pair<at::Generator, at::Tensor>> generators_;
    std::shared_ptr<const RandomCounters::Snapshot> random_;
    ReplicationDepth replication_;
    bool casts_are_cached_;
    at::ThreadLocalStateGuard modes_;
    ForwardAgain again_;
  };

 private:
  std::vector<std::pair<at::Generator, at::Tensor>> generators_;
  std::shared_ptr<RandomCounters> counters_;
  std::shared_ptr<const RandomCounters::Snapshot> random_;
  uint64_t first_draw_;
  ReplicationDepth replication_;
  at::ThreadLocalState modes_;
};

}  // namespace tessera::detail::inline parallel_layer
