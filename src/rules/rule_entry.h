// A rule as the table keeps it.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include <tessera/layout/layout.h>
#include <tessera/rules/rule_table.h>

namespace tessera::detail::inline rules_layer {

/// A row over Partial, from RuleGroup::also(): one letter per tensor.
struct PartialRow {
  std::vector<ReduceOp> ops;
  std::string operands;  // of 'P', 'Q', 'R'
  char output = 'P';
  bool of_floats = false;  // only where all operands are floating
};

/// "Argument `name` is the size of a dim of an operand."
struct SizeArgument {
  std::string name;
  size_t operand;
  int64_t dim;
};

/// The strides of results.
enum class ResultStrides : uint8_t {
  kContiguous,
  kLikeOperands,
  kChannelsLast
};

struct Rule {
  std::string name;
  std::string form;
  std::string text;
  RowsFn rows = {};  // for one mesh dim; not set for views
  ViewFn view = {};
  std::vector<PartialRow> partial_rows = {};
  std::optional<size_t> bias = {};
  std::string shape_argument = {};
  std::vector<SizeArgument> size_arguments = {};
  RunBy local = RunBy::kOperator;
  bool not_empty = false;
  /// Rows depend on no static argument, so that none belongs to a cache key.
  bool ignores_arguments = false;
  /// Operands broadcast against each other to the shape of all outputs.
  bool is_pointwise = false;
  ResultStrides strides = ResultStrides::kContiguous;
};

/// The rule that serves an operator.
struct FoundRule {
  const Rule* rule = nullptr;
  /// The operator is a foreach variant: the rule holds for each index of its
  /// lists.
  bool per_element = false;
};

/// Returns the schemas of all overloads of a name: "aten::add".
using OverloadsFn = std::function<std::vector<const c10::FunctionSchema*>(
    const std::string& name)>;

/// Finds the rule of an operator: its own, or that of the operator of which it
/// is an in-place, out, _copy or foreach variant, or that of ATen for a
/// pointwise operator of torch._prims.
FoundRule find_rule(
    const RuleTable& table, const c10::FunctionSchema& schema,
    const OverloadsFn& overloads);

/// Returns the entry of a name as it is written in the table, or nullptr.
const Rule* lookup_rule(const RuleTable& table, std::string_view name);

/// Grows with every change of a table, so that what was found can be forgotten.
extern std::atomic<uint64_t> rules_generation;

/// Adds all rows of a call: all replicated first, then those of the form, then
/// those over Partial.
void add_rows(const Rule& rule, const RuleCall& call, Rows& rows);

/// Returns the rule of one element of the lists of a foreach call, which runs
/// no local kernel: rows without one. What stands in no list is shared by all
/// elements, which choose for themselves, so that it is replicated.
Rule rule_of_element(const Rule& rule);

/// Parses the text of RuleGroup::also().
PartialRow parse_partial_row(std::string_view text);

// The forms.
RowsFn factor_rows(std::string_view text, const std::optional<size_t>& bias);
void pointwise_rows(const RuleCall& call, Rows& rows);
RowsFn reduction_rows(std::optional<ReduceOp> op);
void along_rows(const RuleCall& call, Rows& rows);
RowsFn leading_rows(int64_t trailing);

/// Returns the dims that a call names in "dim" or "dims"; all where it names
/// none.
std::vector<bool> named_dims(const RuleCall& call, int64_t ndim);

/// Returns the first dim of a layout but `dim` that nothing cuts; nothing where
/// there is none. The result of a select along `dim` lies there on one rank.
inline std::optional<int64_t> unsharded_dim_beside(
    const Layout& layout, int64_t dim) {
  for (int64_t d = 0; d < static_cast<int64_t>(layout.shape().size()); ++d) {
    if (d != dim && layout.cuts(d).empty()) {
      return d;
    }
  }
  return std::nullopt;
}

}  // namespace tessera::detail::inline rules_layer
