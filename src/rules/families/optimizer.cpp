// Steps of optimizers: pointwise in what has one value per parameter, while
// counts of steps, rates and scales are shared by all of them.
#include <algorithm>
#include <array>

#include <rules/all_rules.h>

namespace tessera::detail::inline rules_layer {

namespace {

bool is_per_parameter(const std::string& argument) {
  static constexpr std::array<std::string_view, 7> kNames = {
      "self",
      "grads",
      "exp_avgs",
      "exp_avg_sqs",
      "state_sums",
      "max_exp_avg_sqs",
      "momentum_buffer_list"};
  return std::find(kNames.begin(), kNames.end(), argument) != kNames.end();
}

// Outputs are the lists of the arguments, in their order; of a call that
// returns nothing, those that it writes.
Cell output_cell(const RuleCall& call, size_t output, Cell sharded) {
  const bool returns = !call.schema().returns().empty();
  size_t next = 0;
  for (const auto& argument : call.schema().arguments()) {
    const auto* alias = argument.alias_info();
    if (!returns && (alias == nullptr || !alias->isWrite())) {
      continue;
    }
    if (next++ == output) {
      return is_per_parameter(argument.name()) || argument.name() == "out"
                 ? sharded
                 : Cell();
    }
  }
  return {};
}

void add_step_rows(const RuleCall& call, Rows& rows) {
  for (int64_t d = 0; d < call.self().ndim(); ++d) {
    const Cell sharded = Cell::shard(d);
    Cells operands, outputs;
    for (const Operand& operand : call.operands()) {
      const auto& argument =
          call.schema().arguments()[static_cast<size_t>(operand.argument)];
      operands.push_back(is_per_parameter(argument.name()) ? sharded : Cell());
    }
    for (size_t o = 0; o < call.output_count(); ++o) {
      outputs.push_back(output_cell(call, o, sharded));
    }
    rows.add(std::move(outputs), std::move(operands));
  }
}

}  // namespace

void add_optimizer_rules(RuleTable& t) {
  t.pointwise({"aten::_fused_adam.*", "aten::_fused_adamw.*",
               "aten::_fused_sgd.*", "aten::_fused_adagrad.*"})
      .instead(add_step_rows);
  t.whole({"aten::_amp_update_scale"});
}

}  // namespace tessera::detail::inline rules_layer
