// Chooses a row of a rule for every mesh dim, by the cost of moving the
// operands: one pass over the rows per mesh dim, never over combinations of
// rows.
//
// Example: aten::mm has the rows
//   R, R -> R    S(0), R -> S(0)    R, S(1) -> S(1)    S(1), S(0) -> P(sum)
// With a: S(0) S(1) and b: R S(0) on mesh(dp=2, tp=2):
//   dp: a is S(0), b is R: the second row moves nothing and is chosen
//   tp: a is S(1), b is S(0): the fourth row moves nothing and is chosen
// Operands stay as they are; the output is S(0) P(sum).
#pragma once

#include <functional>
#include <limits>
#include <vector>

#include <rules/rule_entry.h>

namespace tessera::detail::inline rules_layer {

/// Returns the seconds that it takes to bring an operand from one placement to
/// another along one mesh dim; 0 where they are equal. Every rank must get the
/// same number.
using MoveCost = std::function<double(
    const Operand& operand, const Placement& from, const Placement& to,
    int64_t mesh_dim)>;

inline constexpr int64_t kNoMemoryLimit = std::numeric_limits<int64_t>::max();

/// The rows that were chosen, and what follows from them.
struct RuleChoice {
  /// The placements that each operand must have.
  std::vector<Placements> operands;
  /// The placements that each output then has; dims may count from the end.
  std::vector<Placements> outputs;
  /// Per output and mesh dim: the global size of the dim that is sharded, 0
  /// where none is.
  std::vector<std::vector<int64_t>> sharded_sizes;
  /// How a rank runs its part; "" for the operator itself.
  RunBy local = RunBy::kOperator;
  /// The chosen row of each mesh dim.
  std::vector<Row> rows;
};

/// Returns the bytes that the rank with the largest shards holds of operands
/// that a call brings to placements `to`: what is there, and what a move makes.
/// Example: f32[8, 4] on mesh(2): 64 for S(0) -> S(0), 192 for S(0) -> R.
int64_t operand_bytes(
    const RuleCall& call, const MeshShape& mesh,
    const std::vector<Placements>& to);

/// Chooses the row of least cost for every mesh dim; of equal ones the first.
/// Where the operands then take more than `memory_limit` bytes, it chooses
/// again: for each mesh dim the cheapest row of those that keep to the limit,
/// if later mesh dims move nothing, or the one that takes least.
/// Precondition: every defined operand has placements on `mesh`, and the rule
/// has a row that fits any call (all Replicate), as every rule has. Effect:
/// none; it calls `cost` with operands of `call`. Every rank that calls it with
/// equal arguments gets the same choice.
RuleChoice choose_rows(
    const Rule& rule, const RuleCall& call, const MeshShape& mesh,
    const MoveCost& cost, int64_t memory_limit = kNoMemoryLimit);

}  // namespace tessera::detail::inline rules_layer
