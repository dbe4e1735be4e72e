// Proves rules: for a sample call, every row must give on shards what the
// operator gives on whole tensors.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <oracle/sample_call.h>
#include <rules/choose.h>

namespace tessera::oracle {

/// How the shards of a row are cut. A row stands for all of these.
enum class CutStyle : uint8_t {
  kPlain,
  kStrided,
  kRagged,
  kTurned  // two cuts of one tensor dim, that of the last mesh dim first
};
const char* to_string(CutStyle style);

/// What came of one try.
struct Outcome {
  enum class Kind : uint8_t { kRight, kDropped, kWrong };
  Kind kind = Kind::kRight;
  std::string problem = {};
};

/// Returns what the library makes of a call where one row per mesh dim is
/// chosen already; nothing where it would not choose them for these sizes.
std::optional<detail::RuleChoice> choice_of(
    const detail::Rule& rule, const RuleCall& call, const MeshShape& mesh,
    const std::vector<Rows::Row>& rows, CutStyle style);

/// Runs one row per mesh dim on simulated ranks; a foreach call takes the rows
/// of that number for every element, counted round.
Outcome try_rows(
    const SampleCall& call, const MeshShape& mesh,
    const std::vector<size_t>& rows, CutStyle style);

/// Runs a view whose first operand has these placements.
Outcome try_view(
    const SampleCall& call, const MeshShape& mesh,
    const Placements& placements);

/// What checking an operator gave.
struct Report {
  std::string name;
  int64_t cases = 0;
  int64_t dropped = 0;
  int64_t samples = 0;
  int64_t refused = 0;
  /// Why the operator refused its last arguments.
  std::string refusal;
  /// Why there can be no case; "" where there must be one.
  std::string excuse;
  /// One text per wrong case, the first few.
  std::vector<std::string> problems;
  int64_t wrong = 0;
};

/// Checks a rule on samples of its operator until `budget` cases are done.
Report check_operator(
    const c10::OperatorHandle& op, const detail::FoundRule& found,
    int64_t budget);

/// The rule that serves an operator, of which a test knows.
struct Ruled {
  c10::OperatorHandle op;
  detail::FoundRule found;
};
/// Returns all operators of LibTorch that a table serves, by name; of "out"
/// variants only where `with_out`.
std::vector<Ruled> ruled_operators(const RuleTable& table);
/// Finds the rule of one operator in a table: "aten::mm".
std::optional<Ruled> find_ruled(
    const RuleTable& table, const std::string& name);

}  // namespace tessera::oracle
