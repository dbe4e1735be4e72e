// What a decided call will move before and after it runs.
#pragma once

#include <cstddef>
#include <unordered_set>
#include <vector>

#include <tensor/call/decision.h>
#include <tensor/impl/sharded_impl.h>
#include <tensor/move/view_copies.h>
#include <tessera/plan/redistribute_plan.h>

namespace tessera::detail::inline tensor_layer {

/// The redistribution of one argument before the call can run.
struct Move {
  size_t argument;  // of the schema
  SpecPtr source;
  Placements target;
  /// The argument is a view into a copy that a write made stale, and `source`
  /// is the tensor that is copied again.
  bool is_refresh = false;
};

/// The moves of a call, in the order in which they happen. Each function adds
/// the moves that the function named above it will make, and moves no data.
class MoveList {
 public:
  /// refreshed_shard(t)
  void refreshed(size_t argument, const at::Tensor& t);
  /// replicated_value(t)
  void value(size_t argument, const at::Tensor& t);
  /// copy_of(t, target)
  void copy(size_t argument, const at::Tensor& t, const Placements& target);
  /// copy_of(meta, target)
  void copy(size_t argument, const ShardedMeta& meta, const Placements& target);
  /// redistribute_shard(refreshed_shard(t), spec, target)
  void shard(size_t argument, const at::Tensor& t, const Placements& target);
  /// redistribute_shard(...) of a result back to the placements of what is
  /// written
  void back(size_t argument, const at::Tensor& t, const Placements& result);

  const std::vector<Move>& moves() const { return moves_; }

 private:
  void add(
      size_t argument, const SpecPtr& source, const Placements& target,
      bool is_refresh);
  std::vector<Move> moves_;
  std::unordered_set<const ViewCopy*> refreshed_;
};

/// Returns what a decided call will move now.
std::vector<Move> moves_of(
    const OpCall& call, const OpTraits& traits, const Decision& decision);
/// Tells whether ranks talk to each other in these moves.
bool communicates(const std::vector<Move>& moves);

/// Returns the plan that execution follows; prepares nothing.
RedistributePlan plan_of(
    const DTensorSpec& source, const DeviceMesh& mesh,
    const Placements& placements);
RedistributePlan plan_of(const Move& move);
/// Tells whether ranks talk to each other in a step.
bool communicates(const Step& step);

}  // namespace tessera::detail::inline tensor_layer
