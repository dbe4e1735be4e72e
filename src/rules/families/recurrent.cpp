// Fused layers of recurrent networks: sequences of a batch are independent of
// each other. The input is [length, batch, features], states [batch, features].
#include <algorithm>
#include <array>
#include <string_view>

#include <rules/all_rules.h>

namespace tessera::detail::inline rules_layer {

namespace {

Cell sequence_cell(std::string_view name) {
  constexpr std::array<std::string_view, 3> kSequences{
      "input", "output", "grad_output"};
  constexpr std::array<std::string_view, 7> kStates{
      "hx_", "cx_", "cx_tmp", "hy_", "cy_", "grad_hy", "grad_cy"};
  const auto is_one_of = [&](const auto& names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  return is_one_of(kSequences) ? Cell::shard(1)
         : is_one_of(kStates)  ? Cell::shard(0)
                               : Cell();
}

// Sequences that are packed have no dim of batches.
Cells batch_operands(const RuleCall& call) {
  Cells cells;
  for (const Operand& operand : call.operands()) {
    cells.push_back(
        sequence_cell(call.schema()
                          .arguments()[static_cast<size_t>(operand.argument)]
                          .name()));
  }
  return cells;
}

bool has_batches(const RuleCall& call) {
  return call.self().ndim() == 3 && call.integers("batch_sizes").empty();
}

// What a rank's workspace holds is for its own backward: it never moves, since
// the row that saved it is the cheapest there.
void layer_rows(const RuleCall& call, Rows& rows) {
  if (has_batches(call)) {
    rows.add(
        Cells{Cell::shard(1), Cell::shard(0), Cell::shard(0), Cell()},
        batch_operands(call));
  }
}

void layer_gradient_rows(const RuleCall& call, Rows& rows) {
  if (has_batches(call)) {
    const Cell sum = Cell::partial(ReduceOp::kSum);
    rows.add(
        Cells{
            Cell::shard(1), sum, sum, sum, sum, Cell::shard(0), Cell::shard(0)},
        batch_operands(call));
  }
}

}  // namespace

void add_recurrent_rules(RuleTable& t) {
  t.rows("aten::mkldnn_rnn_layer", layer_rows).not_empty();
  t.rows("aten::mkldnn_rnn_layer_backward", layer_gradient_rows).not_empty();
}

}  // namespace tessera::detail::inline rules_layer
