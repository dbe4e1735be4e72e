// Rows of operators that treat the indices of some dims alike and leave one or
// a few dims unsharded: what concat, indexing and pooling share.
#pragma once

#include <string>
#include <vector>

#include <tessera/rules/rule_table.h>

namespace tessera::detail::inline rules_layer {

using Names = std::vector<std::string>;

/// Reduce ops under which a value that is copied stays what it is.
inline constexpr const char* kEveryReduceOp = "sum,avg,max,min,product: ";

/// Adds one row per reduce op: operands that are 'P' in `letters` Partial, the
/// others replicated, all outputs Partial.
inline void add_partial_rows(
    const RuleCall& call, const std::vector<ReduceOp>& ops,
    const std::string& letters, Rows& rows) {
  for (const ReduceOp op : ops) {
    Cells operands;
    for (const char letter : letters) {
      operands.push_back(letter == 'P' ? Cell::partial(op) : Cell());
    }
    rows.add(Cells(call.output_count(), Cell::partial(op)), operands);
  }
}

/// Returns the reduce ops under which the constant `value`, the same on every
/// rank, reduces to itself: a sum of zeros is zero, a mean of equal numbers is
/// that number.
inline std::vector<ReduceOp> ops_that_keep(double value) {
  std::vector<ReduceOp> ops{ReduceOp::kAvg, ReduceOp::kMax, ReduceOp::kMin};
  if (value == 0) {
    ops.push_back(ReduceOp::kSum);
  }
  if (value == 0 || value == 1) {
    ops.push_back(ReduceOp::kProduct);
  }
  return ops;
}

/// Returns a number argument as a double; NaN for a complex one.
double number_argument(const RuleCall& call, std::string_view name);

}  // namespace tessera::detail::inline rules_layer
