// What a decided call will move before and after it runs.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include <tensor/call/decision.h>
#include <tensor/impl/sharded_impl.h>
#include <tensor/move/view_copies.h>
#include <tessera/plan/redistribute_plan.h>

namespace tessera::detail::inline tensor_layer {

/// A collective that follows no plan: the rows of neighbours.
struct Exchange {
  std::string text;     // "all_to_all tp: rows of neighbours"
  std::string subject;  // "rows of neighbours"
  int64_t bytes = 0;    // the largest over ranks
  int64_t bytes_here = 0;
};

/// The redistribution of one argument before the call can run.
struct Move {
  size_t argument;  // of the schema
  SpecPtr source;
  Placements target;
  /// The argument is a view into a copy that a write made stale, and `source`
  /// is the tensor that is copied again.
  bool is_refresh = false;
  /// What moves is a small value on the way to the results, no argument.
  bool is_part = false;
  /// Set where ranks exchange something of the argument, which stays where it
  /// is: `target` is where it lies.
  std::optional<Exchange> exchange = {};
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
/// Tells whether a move gathers an argument: see gathers.h. Values on the way,
/// as the slices that a scan passes on, are none.
bool is_gather(const Move& move);
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
