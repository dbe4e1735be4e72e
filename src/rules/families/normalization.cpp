// Norms over channels, groups and trailing dims.
#include <algorithm>

#include <rules/all_rules.h>

namespace tessera::detail::inline rules_layer {

namespace {

using Names = std::vector<std::string>;

// All outputs are linear in the gradient, which comes first.
void add_linear_in_gradient(const RuleCall& call, Rows& rows) {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg}) {
    Cells operands(call.operands().size(), Cell());
    operands[0] = Cell::partial(op);
    rows.add(
        Cells(call.output_count(), Cell::partial(op)), std::move(operands));
  }
}

// Which operands have the dims before the normalized ones; the others are
// weights of the normalized shape.
RowsFn layer_norm(size_t with_batch, bool is_gradient) {
  return [=](const RuleCall& call, Rows& rows) {
    const auto normalized =
        static_cast<int64_t>(call.integers("normalized_shape").size());
    for (int64_t d = 0; d < call.self().ndim() - normalized; ++d) {
      Cells operands(call.operands().size(), Cell());
      std::fill_n(operands.begin(), with_batch, Cell::shard(d));
      Cells outputs(call.output_count(), is_gradient ? kSum : Cell::shard(d));
      outputs[0] = Cell::shard(d);
      rows.add(std::move(outputs), std::move(operands));
    }
    if (is_gradient) {
      add_linear_in_gradient(call, rows);
    }
  };
}

void add_layer_norms(RuleTable& t) {
  // input, weight, bias -> output, mean, 1 / deviation
  t.rows("aten::native_layer_norm", layer_norm(1, false));
  // gradient, input, mean, 1 / deviation, weight, bias
  t.rows("aten::native_layer_norm_backward", layer_norm(4, true));
  // input, weight -> output, 1 / root of mean square
  t.rows("aten::_fused_rms_norm", layer_norm(1, false));
  t.rows("aten::_fused_rms_norm_backward", layer_norm(3, true));
}

void add_group_norms(RuleTable& t) {
  const Cell batch = Cell::shard(0);
  t.rows(
       "aten::native_group_norm",
       [batch](const RuleCall&, Rows& rows) {
         rows.add({batch, batch, batch}, {batch, Cell(), Cell()});
       })
      .size_argument("N", 0, 0)
      .channels_last();
  t.rows(
       "aten::native_group_norm_backward",
       [batch](const RuleCall& call, Rows& rows) {
         rows.add({batch, kSum, kSum}, {batch, batch, batch, batch, Cell()});
         add_linear_in_gradient(call, rows);
       })
      .size_argument("N", 0, 0)
      .channels_last();
}

// Is a name of a schema that of a value per channel that the call returns?
bool is_running_output(const RuleCall& call, size_t output) {
  const std::string& name = call.schema().returns()[output].name();
  return name.size() > 4 && name.compare(name.size() - 4, 4, "_out") == 0;
}

bool is_training(const RuleCall& call) {
  for (const char* name : {"training", "train", "update"}) {
    if (call.has_argument(name)) {
      return call.boolean(name);
    }
  }
  return false;
}

// Channels are independent of each other. In evaluation so is everything else,
// and the saved statistics (outputs 1 and 2) are not computed: what they hold
// depends on the device.
void add_batch_norm_rows(const RuleCall& call, Rows& rows) {
  const bool training = is_training(call);
  const int64_t ndim = call.self().ndim();
  const Cell channel = Cell::shard(0);
  for (int64_t d = 0; d < ndim && ndim > 1; ++d) {
    if (d != 1 && training) {
      continue;
    }
    Cells operands(call.operands().size(), d == 1 ? channel : Cell());
    operands[0] = Cell::shard(d);
    Cells outputs(call.output_count(), Cell());
    outputs[0] = Cell::shard(d);
    for (size_t o = 1; o < outputs.size() && d == 1; ++o) {
      const bool per_channel = o < 3 ? training : is_running_output(call, o);
      outputs[o] = per_channel ? channel : Cell();
    }
    rows.add(std::move(outputs), std::move(operands));
  }
}

// gradient, input, weight, running mean and variance, saved mean and deviation
// -> gradients of input, weight, bias
void add_batch_norm_gradient_rows(const RuleCall& call, Rows& rows) {
  const bool training = is_training(call);
  const int64_t ndim = call.self().ndim();
  for (int64_t d = 0; d < ndim && ndim > 1; ++d) {
    if (d != 1 && training) {
      continue;
    }
    Cells operands{Cell::shard(d), Cell::shard(d)};
    for (size_t i = 2; i < call.operands().size(); ++i) {
      const Operand& operand = call.operand(i);
      const bool per_channel =
          operand.ndim() == 1 && operand.shape[0] == call.self().shape[1];
      operands.push_back(d == 1 && per_channel ? Cell::shard(0) : Cell());
    }
    const Cell weight = d == 1 ? Cell::shard(0) : kSum;
    rows.add(Cells{Cell::shard(d), weight, weight}, std::move(operands));
  }
  add_linear_in_gradient(call, rows);
}

// These hand the backward operator a buffer whose contents only the device
// library knows: what one rank's part made must meet the same part again.
void add_opaque_batch_norm_rows(const RuleCall& call, Rows& rows) {
  if (!is_training(call)) {
    add_batch_norm_rows(call, rows);
  }
}

// Their kernels fail on empty tensors.
void add_batch_norms(RuleTable& t) {
  t.rows(
       Names{
           "aten::native_batch_norm", "aten::_native_batch_norm_legit.*",
           "aten::_native_batch_norm_legit_functional",
           "aten::_native_batch_norm_legit_no_training"},
       add_batch_norm_rows)
      .channels_last()
      .not_empty();
  t.rows("aten::native_batch_norm_backward", add_batch_norm_gradient_rows)
      .channels_last()
      .not_empty();
  t.rows(
       Names{
           "aten::cudnn_batch_norm", "aten::miopen_batch_norm",
           "aten::_batch_norm_no_update"},
       add_opaque_batch_norm_rows)
      .channels_last()
      .not_empty();
  t.whole({"aten::_batch_norm_with_update",
           "aten::_batch_norm_with_update_functional",
           "aten::batch_norm_backward", "aten::cudnn_batch_norm_backward",
           "aten::miopen_batch_norm_backward"})
      .channels_last()
      .not_empty();
}

// What has a norm of its own per index of dim `dim`.
void add_rows_along_one_dim(const RuleCall& call, Rows& rows) {
  const Cell sharded =
      Cell::shard(wrap_dim(call.integer("dim"), call.self().ndim()));
  rows.add(
      Cells(call.output_count(), sharded),
      Cells(call.operands().size(), sharded));
}

}  // namespace

void add_normalization_rules(RuleTable& t) {
  add_layer_norms(t);
  add_group_norms(t);
  add_batch_norms(t);
  t.rows("aten::renorm.*", add_rows_along_one_dim);
  // Kernels that fail on empty tensors.
  t.rows("aten::_weight_norm_interface", add_rows_along_one_dim).not_empty();
  t.rows("aten::_weight_norm_interface_backward", add_rows_along_one_dim)
      .also("sum,avg: PRRR->P")
      .not_empty();
}

}  // namespace tessera::detail::inline rules_layer
