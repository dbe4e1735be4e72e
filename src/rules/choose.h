// Which row on which mesh dim? One pass over the mesh dims, one over the rows
// of each: never the product of both.
#pragma once

#include <functional>
#include <vector>

#include <rules/rule_entry.h>

namespace tessera::detail {

/// Returns the seconds that it takes to bring an operand from one placement to
/// another along one mesh dim; 0 where they are equal. Every rank must get the
/// same number.
using MoveCost = std::function<double(
    const Operand& operand, const Placement& from, const Placement& to,
    int64_t mesh_dim)>;

/// What a rule makes of a call on a mesh.
struct RuleChoice {
  /// The placements that each operand must have.
  std::vector<Placements> operands;
  /// The placements that each output then has; dims may count from the end.
  std::vector<Placements> outputs;
  /// Per output and mesh dim: the global size of the dim that it cuts.
  std::vector<std::vector<int64_t>> sharded_sizes;
  /// How a rank runs its part; "" for the operator itself.
  std::string_view local;
  /// The chosen row of each mesh dim.
  std::vector<Row> rows;
};

/// Chooses the row of least cost for every mesh dim. Of equal ones the first.
RuleChoice choose_rows(
    const Rule& rule, const RuleCall& call, const MeshShape& mesh,
    const MoveCost& cost);

}  // namespace tessera::detail
