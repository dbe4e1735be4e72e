// Random operators on plain tensors that draw Tessera's numbers.
//
// Note [Plain tensors that must be equal on all ranks]
// ATen's composite kernels and torch::nn::init make plain tensors of their own
// (the noise of feature_dropout, the matrix of orthogonal_) and draw into them
// from the process's generator: ranks that are threads would share it, and get
// different numbers every time. While a PlainDraws lives, a dispatch key below
// autograd is switched on for the thread; our kernels of random operators are
// registered for it, and every other operator falls through.
#pragma once

#include <memory>

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <comm/engine/random_counters.h>
#include <tensor/call/op_call.h>
#include <tensor/state/torch_compat.h>

namespace tessera::detail {

/// While it lives on this thread, random operators on plain tensors draw from
/// `counters`.
class PlainDraws {
 public:
  explicit PlainDraws(std::shared_ptr<RandomCounters> counters);
  ~PlainDraws();
  PlainDraws(const PlainDraws&) = delete;
  PlainDraws& operator=(const PlainDraws&) = delete;
  /// Returns the innermost one's counters; nullptr where there is none.
  static RandomCounters* current();

 private:
  std::shared_ptr<RandomCounters> counters_;
  RandomCounters* outer_;
  c10::impl::IncludeDispatchKeyGuard include_;
};

/// While it lives, a composite operator's draws are a sequence of their own,
/// which one draw of the rank names: however many there are, the rank's counter
/// moves by one. Plain tensors take part.
class OperationDraws {
 public:
  /// A call that does not `count`, in a dry run, leaves the counters alone.
  explicit OperationDraws(const OpCall& call, bool counts = true);
  ~OperationDraws();
  OperationDraws(const OperationDraws&) = delete;
  OperationDraws& operator=(const OperationDraws&) = delete;

 private:
  std::shared_ptr<RandomCounters> counters_;
  PlainDraws plain_;
};

/// Registers the kernels for plain tensors, once per process.
void register_plain_random();

}  // namespace tessera::detail
