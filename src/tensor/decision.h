// How a call will be run, found out before anything moves. Execution, explain()
// and StrictMode ask here.
#pragma once

#include <unordered_set>
#include <vector>

#include <tensor/op_traits.h>
#include <tessera/plan/redistribute_plan.h>

namespace tessera::detail {

/// Tells whether an argument is neither plain nor replicated.
bool has_cut_argument(const OpCall& call);

/// What a call runs on.
enum class Way : uint8_t {
  kSpecial,    // a kernel of its own
  kOnShards,   // the shards as they are
  kReplicated  // whole values
};

/// The way, and for kOnShards the tensor whose layout all others share.
struct Choice {
  Way way;
  const at::Tensor* reference = nullptr;
};

/// Returns the way of a call; every rank finds the same one.
Choice choose_way(const OpCall& call, const OpTraits& traits);

/// A tensor that must be in other placements before the call can run.
struct Move {
  size_t argument;  // of the schema
  SpecPtr source;
  Placements target;
  /// The argument is a view into a gathered copy that a write made stale, and
  /// `source` is the tensor that is gathered again.
  bool is_refresh = false;
};

/// The moves of a call, in the order in which they happen. Each function here
/// foretells what the function that it names will communicate.
class MoveList {
 public:
  /// fresh_local(t)
  void fresh(size_t argument, const at::Tensor& t);
  /// replicated_value(t)
  void value(size_t argument, const at::Tensor& t);
  /// whole_of(t)
  void whole(size_t argument, const at::Tensor& t);
  /// move_shard(fresh_local(t), spec, target)
  void shard(size_t argument, const at::Tensor& t, const Placements& target);

  const std::vector<Move>& moves() const { return moves_; }

 private:
  void add(
      size_t argument, const SpecPtr& source, const Placements& target,
      bool is_refresh);
  std::vector<Move> moves_;
  std::unordered_set<const ShardCell*> refreshed_;
};

/// Adds what run_replicated() will move.
void add_replicated_moves(
    const OpCall& call, const OpTraits& traits, MoveList& list);

/// How a call will be run.
struct Decision {
  Way way = Way::kReplicated;
  /// Why this way: "elementwise, and all tensors have one layout".
  const char* reason = "";
  std::vector<Move> moves;
  /// Whole values stand in for shards, since no rule serves the call.
  bool is_fallback = false;

  /// Tells whether ranks will talk to each other.
  bool communicates() const;
};

Decision decide(const OpCall& call, const OpTraits& traits);

/// Returns the plan that execution follows; prepares nothing.
RedistributePlan plan_of(
    const DTensorSpec& source, const DeviceMesh& mesh,
    const Placements& placements);
RedistributePlan plan_of(const Move& move);
/// Tells whether ranks talk to each other in a step.
bool communicates(const Step& step);

}  // namespace tessera::detail
