// A dry run: calls pass through the dispatcher, composite kernels decompose
// them, and each one that reaches us is decided and noted down instead of run.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <tensor/call/moves.h>
#include <tensor/call/observer.h>

namespace tessera::detail::inline tensor_layer {

/// A call that a dry run met.
struct DryCall {
  std::string text;
  const c10::FunctionSchema* schema = nullptr;
  Strategy strategy = Strategy::kReplicated;
  std::string reason = {};
  /// All that was cut is gathered first.
  bool is_unsharded = false;
  std::vector<Move> moves = {};
  /// "f32[8, 2] R", one per result; none where they are not known.
  std::vector<std::string> results = {};
};

/// While it lives, this thread's calls on sharded tensors are noted down.
class DryRun final : public CallObserver {
 public:
  DryRun();
  ~DryRun() override;

  /// Makes a call whose arguments are those of remove_data(), as far as it
  /// goes without values.
  void make(const c10::OperatorHandle& op, torch::jit::Stack& stack);

  void take(const OpCall& call, const OpTraits& traits) override;
  void add(Move move) override {
    calls_.back().moves.push_back(std::move(move));
  }
  [[noreturn]] void stop_at_values(
      const OpCall& call, const MoveList& moves) override;

  const std::vector<DryCall>& calls() const { return calls_; }
  /// Returns why the run ended early, or "".
  const std::string& end() const { return end_; }

 private:
  [[noreturn]] void stop(std::string why);
  std::vector<DryCall> calls_;
  std::string end_;
};

/// Replaces the sharded tensors of a call by tensors without data that are
/// equal in all else, and plain ones that it writes by others.
void remove_data(const OpCall& call);

}  // namespace tessera::detail::inline tensor_layer
