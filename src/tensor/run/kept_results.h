// Results of operators that are kept for a forward that runs again.
//
// Note [Kept results]
// While a KeptResults::Keep or Take lives, the dispatch key of random numbers
// of plain tensors (unsharded_random.h) is on for the thread: it lies below
// autograd, so the graph of both runs is the same, and its fallback sees every
// operator but the random ones. Those that the names mean run once: the second
// run takes their results in the same order. What was written since then in
// place is computed again. Operators that a kernel calls are not seen: what
// they make is written without a trace. The moves of a kept operator are its
// own affair.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace tessera::detail::inline tensor_layer {

/// The kept results of one part of a program.
class KeptResults {
 public:
  /// Names with globs: "aten::mm", "aten::*softmax*". Throws where one names no
  /// operator.
  explicit KeptResults(std::vector<std::string> names);
  KeptResults(const KeptResults&) = delete;
  KeptResults& operator=(const KeptResults&) = delete;

  class Run;

 private:
  struct One {
    c10::OperatorName op;
    std::vector<at::Tensor> results;
    std::vector<int64_t> versions;
    bool is_unwritten() const;
  };
  bool keeps(const c10::OperatorHandle& op);

  std::vector<std::string> names_;
  std::unordered_map<c10::OperatorName, bool> kept_;
  std::vector<One> all_;
};

/// While it lives, this thread's operators keep their results, or take them:
/// nullptr does neither.
class KeptResults::Run {
 public:
  enum class How : uint8_t { kKeep, kTake, kTakeOnce };
  Run(KeptResults* results, How how);
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  /// Runs a call, or takes its results; the fallback's body.
  static void call(
      const c10::OperatorHandle& op, c10::DispatchKeySet below,
      torch::jit::Stack* stack);

 private:
  void keep(const c10::OperatorHandle& op, const torch::jit::Stack& stack);
  bool take(const c10::OperatorHandle& op, torch::jit::Stack* stack);

  KeptResults* results_;
  How how_;
  size_t taken_ = 0;
  Run* outer_;
  c10::impl::IncludeDispatchKeyGuard include_;
};

/// The fallback of kUnshardedRandomKey.
void kept_results_fallback(
    const c10::OperatorHandle& op, c10::DispatchKeySet keys,
    torch::jit::Stack* stack);

}  // namespace tessera::detail::inline tensor_layer
