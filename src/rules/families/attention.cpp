// Scaled dot product attention: [batch, heads, length, features]. Batches and
// heads are independent of each other; so are queries, where no mask is made
// from their position.
//
// Dropout inside these kernels draws by the place in a rank's part, so that
// with dropout nothing is cut.
#include <algorithm>
#include <array>

#include <rules/all_rules.h>

namespace tessera::detail::inline rules_layer {

namespace {

using Names = std::vector<std::string>;

enum class Role : uint8_t { kQuery, kKey, kMask, kOther };

template <size_t N>
bool is_one_of(
    std::string_view name, const std::array<std::string_view, N>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// What an argument is, from its name in the schema.
Role role_of(std::string_view name) {
  static constexpr std::array<std::string_view, 6> kLikeQuery = {
      "query", "out", "grad_out", "grad_out_", "logsumexp", "log_sumexp"};
  static constexpr std::array<std::string_view, 2> kLikeKey = {"key", "value"};
  static constexpr std::array<std::string_view, 2> kMasks = {
      "attn_mask", "attn_bias"};
  return is_one_of(name, kLikeQuery) ? Role::kQuery
         : is_one_of(name, kLikeKey) ? Role::kKey
         : is_one_of(name, kMasks)   ? Role::kMask
                                     : Role::kOther;
}

const std::string& argument_name(const RuleCall& call, const Operand& operand) {
  return call.schema()
      .arguments()[static_cast<size_t>(operand.argument)]
      .name();
}

// A mask has the dims of the scores, [batch, heads, length, keys], or fewer.
Cell mask_cell(const Operand& mask, int64_t d, int64_t size) {
  const int64_t own = d - (4 - mask.ndim());
  const bool has =
      mask.defined && own >= 0 && mask.shape[static_cast<size_t>(own)] == size;
  return has ? Cell::shard(own) : Cell();
}

const Operand& query_of(const RuleCall& call) {
  for (const Operand& operand : call.operands()) {
    if (argument_name(call, operand) == "query") {
      return operand;
    }
  }
  return call.self();
}

Cells operand_cells(const RuleCall& call, int64_t d, int64_t size) {
  Cells cells;
  for (const Operand& operand : call.operands()) {
    switch (role_of(argument_name(call, operand))) {
      case Role::kQuery:
        cells.push_back(Cell::shard(d));
        break;
      case Role::kKey:
        cells.push_back(d < 2 ? Cell::shard(d) : Cell());
        break;
      case Role::kMask:
        cells.push_back(mask_cell(operand, d, size));
        break;
      case Role::kOther:
        cells.emplace_back();
        break;
    }
  }
  return cells;
}

// Gradients of a mask that is broadcast would have to be added up in the shape
// that the kernel gives them.
bool has_broadcast_mask(const RuleCall& call, int64_t d, int64_t size) {
  return std::any_of(
      call.operands().begin(), call.operands().end(),
      [&](const Operand& operand) {
        return operand.defined &&
               role_of(argument_name(call, operand)) == Role::kMask &&
               !mask_cell(operand, d, size).is_shard();
      });
}

bool is_cuttable(const RuleCall& call) {
  return query_of(call).ndim() == 4 &&
         call.argument("dropout_p").toDouble() == 0 &&
         !call.boolean("return_debug_mask");
}

// Dims of the query that can be cut: its length only in kernels whose
// logsumexp has that length.
int64_t sharded_dims(const RuleCall& call, bool has_plain_lengths) {
  return has_plain_lengths && !call.boolean("is_causal") ? 3 : 2;
}

RowsFn attention(bool has_plain_lengths) {
  return [=](const RuleCall& call, Rows& rows) {
    if (!is_cuttable(call)) {
      return;
    }
    for (int64_t d = 0; d < sharded_dims(call, has_plain_lengths); ++d) {
      const int64_t size = query_of(call).shape[static_cast<size_t>(d)];
      Cells outputs(call.output_count(), Cell());
      outputs[0] = outputs[1] = Cell::shard(d);
      rows.add(std::move(outputs), operand_cells(call, d, size));
    }
  };
}

void add_linear_in_gradient(const RuleCall& call, Rows& rows) {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg}) {
    Cells operands(call.operands().size(), Cell());
    operands[0] = Cell::partial(op);
    rows.add(
        Cells(call.output_count(), Cell::partial(op)), std::move(operands));
  }
}

// Outputs: gradients of query, key, value, and of the mask in some.
RowsFn attention_gradient(bool has_plain_lengths) {
  return [=](const RuleCall& call, Rows& rows) {
    if (!is_cuttable(call)) {
      return;
    }
    const bool has_mask_gradient = call.output_count() == 4;
    for (int64_t d = 0; d < sharded_dims(call, has_plain_lengths); ++d) {
      const int64_t size = query_of(call).shape[static_cast<size_t>(d)];
      if (has_mask_gradient && has_broadcast_mask(call, d, size)) {
        continue;
      }
      Cells outputs(call.output_count(), Cell::shard(d));
      if (d == 2) {
        // Every query adds to the gradients of all keys and values.
        outputs[1] = outputs[2] = Cell::partial(ReduceOp::kSum);
      }
      rows.add(std::move(outputs), operand_cells(call, d, size));
    }
    add_linear_in_gradient(call, rows);
  };
}

}  // namespace

void add_attention_rules(RuleTable& t) {
  t.rows(
       Names{
           "aten::_scaled_dot_product_flash_attention_for_cpu",
           "aten::_scaled_dot_product_flash_attention"},
       attention(true))
      .not_empty();
  t.rows(
       Names{
           "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
           "aten::_scaled_dot_product_flash_attention_backward"},
       attention_gradient(true))
      .not_empty();
  t.rows(
       Names{
           "aten::_scaled_dot_product_efficient_attention",
           "aten::_scaled_dot_product_cudnn_attention",
           "aten::_scaled_dot_product_fused_attention_overrideable"},
       attention(false))
      .not_empty();
  t.rows(
       Names{
           "aten::_scaled_dot_product_efficient_attention_backward",
           "aten::_scaled_dot_product_cudnn_attention_backward",
           "aten::_scaled_dot_product_fused_attention_overrideable_backward"},
       attention_gradient(false))
      .not_empty();
}

}  // namespace tessera::detail::inline rules_layer
