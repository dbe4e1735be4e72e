// Convolutions by batch, output channels, input channels, and those spatial
// dims that need no neighbours.
//
// Weights are [out, in / groups, ...], of transposed ones [in, out / groups,
// ...]. Rows of channels run by RunBy::kConvolution, which gives the local
// call the number of groups and of biases that its shard has.
#include <rules/all_rules.h>

namespace tessera::detail::inline rules_layer {

namespace {

constexpr RunBy kKernel = RunBy::kConvolution;

// What the rows of a convolution depend on.
struct Convolution {
  const Operand& input;
  const Operand& weight;
  bool transposed = false;
  bool depthwise = false;  // one input and one output channel per group
  bool one_group = true;

  int64_t spatial_dims() const { return input.ndim() - 2; }
  int64_t out_dim() const { return transposed ? 1 : 0; }
  int64_t in_dim() const { return transposed ? 0 : 1; }
};

bool has_word(const RuleCall& call, const char* word) {
  return call.schema().name().find(word) != std::string::npos;
}

Convolution read(
    const RuleCall& call, const Operand& input, const Operand& weight) {
  Convolution conv{input, weight};
  conv.transposed = call.boolean("transposed") || has_word(call, "_transpose");
  const int64_t channels = input.shape[1];
  const int64_t groups = has_word(call, "depthwise")   ? channels
                         : call.has_argument("groups") ? call.integer("groups")
                                                       : 1;
  conv.one_group = groups == 1;
  conv.depthwise = !conv.one_group && groups == channels &&
                   weight.shape[0] == channels && weight.shape[1] == 1;
  return conv;
}

// Tells whether every element of `values` that concerns spatial dim i is `is`;
// one value stands for all dims.
bool all_are(const RuleCall& call, const char* name, int64_t i, int64_t is) {
  if (!call.has_argument(name)) {
    return true;
  }
  const std::vector<int64_t> values = call.integers(name);
  return values.empty() ||
         values[values.size() == 1 ? 0 : static_cast<size_t>(i)] == is;
}

// Element x of the result needs element x of the input alone.
bool needs_no_neighbours(
    const RuleCall& call, const Convolution& conv, int64_t i) {
  return conv.weight.shape[static_cast<size_t>(2 + i)] == 1 &&
         all_are(call, "stride", i, 1) && all_are(call, "padding", i, 0) &&
         all_are(call, "output_padding", i, 0);
}

bool is_batched(const Operand& input, const Operand& weight) {
  return input.ndim() == weight.ndim() && input.ndim() >= 3;
}

// Operands are input, weight and, where the schema has one, the bias.
void convolution_rows(const RuleCall& call, Rows& rows) {
  if (!is_batched(call.operand(0), call.operand(1))) {
    return;
  }
  const Convolution conv = read(call, call.operand(0), call.operand(1));
  const auto row = [&](Cell output, Cell input, Cell weight, Cell bias,
                       RunBy local = RunBy::kOperator) {
    Cells operands{input, weight};
    if (call.operands().size() == 3) {
      operands.push_back(bias);
    }
    rows.add(Cells{output}, std::move(operands), local);
  };
  row(Cell::shard(0), Cell::shard(0), kR, kR);
  if (conv.one_group) {
    row(Cell::shard(1), kR, Cell::shard(conv.out_dim()), Cell::shard(0));
    row(kSum, Cell::shard(1), Cell::shard(conv.in_dim()), kSum);
  }
  if (conv.depthwise) {
    row(Cell::shard(1), Cell::shard(1), Cell::shard(0), Cell::shard(0),
        kKernel);
  }
  for (int64_t i = 0; i < conv.spatial_dims(); ++i) {
    if (needs_no_neighbours(call, conv, i)) {
      row(Cell::shard(2 + i), Cell::shard(2 + i), kR, kR);
    }
  }
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg}) {
    const Cell p = Cell::partial(op);
    row(p, p, kR, p);
    row(p, kR, p, p);
  }
}

// Operands are the gradient of the result, input, weight; outputs are the
// gradients of input, weight, bias.
void convolution_backward_rows(const RuleCall& call, Rows& rows) {
  if (!is_batched(call.operand(1), call.operand(2))) {
    return;
  }
  const Convolution conv = read(call, call.operand(1), call.operand(2));
  const Cell out = Cell::shard(conv.out_dim());
  const Cell in = Cell::shard(conv.in_dim());
  const Cell channel = Cell::shard(1);
  rows.add({Cell::shard(0), kSum, kSum}, {Cell::shard(0), Cell::shard(0), kR});
  if (conv.one_group) {
    rows.add({kSum, out, Cell::shard(0)}, {channel, kR, out}, kKernel);
    rows.add({channel, in, kR}, {kR, channel, in});
  }
  if (conv.depthwise) {
    rows.add(
        {channel, Cell::shard(0), Cell::shard(0)},
        {channel, channel, Cell::shard(0)}, kKernel);
  }
  for (int64_t i = 0; i < conv.spatial_dims(); ++i) {
    if (needs_no_neighbours(call, conv, i)) {
      const Cell sharded = Cell::shard(2 + i);
      rows.add({sharded, kSum, kSum}, {sharded, sharded, kR});
    }
  }
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg}) {
    const Cell p = Cell::partial(op);
    rows.add({p, p, p}, {p, kR, kR});
  }
}

// [time, batch, in] with a weight [kernel, in, out].
void add_conv_tbc(RuleTable& t) {
  t.rows(
       "aten::conv_tbc", {{Shard(1), Shard(1), Replicate(), Replicate()},
                          {Shard(2), Replicate(), Shard(2), Shard(0)},
                          {Partial(), Shard(2), Shard(1), Partial()}})
      .also("sum,avg: PRP->P")
      .also("sum,avg: RPP->P")
      .not_empty();
}

}  // namespace

void add_convolution_rules(RuleTable& t) {
  t.rows(
       std::vector<std::string>{
           "aten::convolution", "aten::convolution_overrideable",
           "aten::_convolution", "aten::mkldnn_convolution",
           "aten::cudnn_convolution", "aten::cudnn_convolution_transpose",
           "aten::miopen_convolution", "aten::miopen_convolution_transpose",
           "aten::miopen_depthwise_convolution",
           "aten::_nnpack_spatial_convolution", "aten::_slow_conv2d_forward",
           "aten::slow_conv3d_forward", "aten::slow_conv_dilated2d",
           "aten::slow_conv_dilated3d", "aten::slow_conv_transpose2d",
           "aten::slow_conv_transpose3d", "aten::_conv_depthwise2d",
           "aten::conv_depthwise3d"},
       convolution_rows)
      .not_empty()
      .channels_last();
  t.rows(
       std::vector<std::string>{
           "aten::convolution_backward",
           "aten::convolution_backward_overrideable",
           "aten::_slow_conv2d_backward.output_mask"},
       convolution_backward_rows)
      .not_empty();
  add_conv_tbc(t);
}

}  // namespace tessera::detail::inline rules_layer
