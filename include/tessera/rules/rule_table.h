// The table of rules: one entry per operator, in one of a few forms. Families
// of LibTorch's operators are listed in src/rules/families; users add their own
// with the same calls.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/export.h>
#include <tessera/rules/rule.h>

namespace tessera {

namespace detail::inline rules_layer {
struct Rule;
enum class ResultStrides : uint8_t;
}  // namespace detail::inline rules_layer

/// The rules that one call added; its functions refine all of them.
class TESSERA_API RuleGroup {
 public:
  /// Adds rows over Partial. "sum,avg: PR->P" means: for each reduce op listed,
  /// the first operand Partial(op), the second replicated, the outputs
  /// Partial(op). `Q` in the place of `P` means the other one of max and min.
  /// "max,min of floats: PR->P" holds where all operands are floating. Rows
  /// whose number of operands is not that of the call are left out.
  /// Example: rules().pointwise({"my::twice"}).also("sum,avg: P->P");
  RuleGroup& also(std::string_view rows);
  /// Adds the rows that a function computes, for rows that hold for some dtypes
  /// or arguments only.
  RuleGroup& also(RowsFn rows);
  /// Takes the rows from a function and keeps everything else of the form: an
  /// optimizer's step is pointwise but for its rate.
  RuleGroup& instead(RowsFn rows);
  /// Says that operand `i` is added to the result: it has the output's letters,
  /// aligned from the right, and is Partial where the output is.
  /// Example: rules().factors("my::addmm", "mn,mk,kn->mn").bias(0);
  RuleGroup& bias(size_t operand);
  /// Says that argument `name` is the shape of output 0, so that the call on
  /// shards gets the shape of the shard.
  RuleGroup& shape_argument(std::string_view name);
  /// Says that argument `name` is the size of dim `dim` of operand `operand`.
  RuleGroup& size_argument(std::string_view name, size_t operand, int64_t dim);
  /// Says that the operator fails on empty tensors, so that no rank may be left
  /// with an empty shard.
  RuleGroup& not_empty();
  /// Says that results are channels last where an operand is; of a list of
  /// tensors, where all are.
  RuleGroup& channels_last();
  /// Says that results of an operand's shape have its strides.
  RuleGroup& like_operands();
  /// Says that results are contiguous, whatever the operands are.
  RuleGroup& contiguous();
  /// Says how a rank runs its part in every row of the rules.
  RuleGroup& local(detail::RunBy kernel);

 private:
  friend class RuleTable;
  RuleGroup& set_strides(detail::ResultStrides strides);
  std::vector<detail::Rule*> rules_;
};

/// An entry as it is listed.
struct RuleInfo {
  /// "aten::mm"; of a pattern "aten::add.*".
  std::string name;
  /// "factors", "pointwise", "reduction", "along", "leading", "rows",
  /// "function", "view", "whole".
  std::string form;
  /// What the form was given: "mk,kn->mn".
  std::string text;
};

/// Prints "aten::mm factors mk,kn->mn".
TESSERA_API std::string to_string(const RuleInfo& info);

/// Rules by operator. A name is "aten::mm", "aten::add.Tensor", or
/// "aten::add.*" for every overload that has no entry of its own. In-place,
/// out, _copy and foreach variants follow the operator that they are variants
/// of, and pointwise operators of torch._prims ATen's of the same name. A
/// second entry of one name is an error; remove() the first to replace it.
class TESSERA_API RuleTable {
 public:
  RuleTable();
  ~RuleTable();
  RuleTable(const RuleTable&) = delete;
  RuleTable& operator=(const RuleTable&) = delete;

  /// Adds a rule of letters: dims of operands and outputs that share a letter
  /// are cut together; a letter without output gives Partial(sum); '.' is a dim
  /// that is never cut.
  /// Example: rules().factors("my::mm", "mk,kn->mn");
  RuleGroup factors(std::string_view name, std::string_view text);
  /// Adds operators of which element i of a result needs elements i of the
  /// operands, broadcast as usual.
  /// Example: rules().pointwise({"my::relu", "my::scale.*"});
  RuleGroup pointwise(std::vector<std::string> names);
  /// Adds operators that reduce the dims in argument "dim" (all where it is
  /// missing or empty): other dims stay, and a cut of a reduced dim gives
  /// Partial(op).
  /// Example: rules().reduction({"my::total"}, ReduceOp::kSum);
  RuleGroup reduction(std::vector<std::string> names, ReduceOp op);
  /// The same where a reduced dim cannot be cut.
  /// Example: rules().reduction({"my::median"});
  RuleGroup reduction(std::vector<std::string> names);
  /// Adds operators that work along the dims in argument "dim" or "dims" and
  /// keep them: only the other dims can be cut.
  /// Example: rules().along({"my::softmax"});
  RuleGroup along(std::vector<std::string> names);
  /// Adds operators that work on the last `trailing` dims of every operand, and
  /// alike on each index of the dims before them, which can be cut. Operands
  /// with fewer dims are replicated.
  /// Example: rules().leading({"my::inverse"}, 2);
  RuleGroup leading(std::vector<std::string> names, int64_t trailing);
  /// Adds rows as they stand: outputs, then operands.
  /// Example: rules().rows("my::lookup", {{Shard(-1), Shard(1), Replicate()}});
  RuleGroup rows(
      std::string_view name, std::vector<std::vector<Placement>> rows);
  /// Adds a function that computes the rows of a call.
  RuleGroup rows(std::vector<std::string> names, RowsFn rows);
  RuleGroup rows(std::string_view name, RowsFn rows);
  /// Adds a function that computes the layout of views: operators that only
  /// rename or pick elements of operand 0.
  RuleGroup view(std::vector<std::string> names, ViewFn layout);

  /// Names operators of which no dim can be cut: they run on whole values, by
  /// decision and not for want of a rule. Rows over Partial may be added.
  /// Example: rules().whole({"my::hash"});
  RuleGroup whole(std::vector<std::string> names);

  /// Removes the entry of a name; nothing happens where there is none.
  void remove(std::string_view name);

  /// Returns all entries by name.
  std::vector<RuleInfo> list() const;
  struct State;
  /// For the library's own use.
  State& state() const { return *state_; }

 private:
  RuleGroup add(
      const std::vector<std::string>& names, const detail::Rule& like);
  std::unique_ptr<State> state_;
};

/// Returns the table of this process.
TESSERA_API RuleTable& rules();

}  // namespace tessera
