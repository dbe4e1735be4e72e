// Softmax, gates and losses.
#include <rules/all_rules.h>
#include <rules/rule_entry.h>

namespace tessera::detail::inline rules_layer {

namespace {

using Names = std::vector<std::string>;

// at::Reduction: what a loss does with its terms.
enum class LossReduction : int64_t { kNone = 0, kMean = 1, kSum = 2 };

LossReduction reduction_of(const RuleCall& call) {
  return static_cast<LossReduction>(call.integer("reduction"));
}

// A loss of one term per element. Its mean over a part is no part of the mean:
// the number of elements is that of the part.
void add_elementwise_loss_rows(const RuleCall& call, Rows& rows) {
  const LossReduction reduction = reduction_of(call);
  if (reduction == LossReduction::kMean) {
    return;
  }
  Rows plain;
  pointwise_rows(call, plain);
  for (const Row& row : plain.rows()) {
    rows.add(
        reduction == LossReduction::kSum ? Cells{kSum} : row.outputs,
        row.operands);
  }
}

// Its gradient: the incoming one is a single number where the terms were added.
void add_elementwise_loss_gradient_rows(const RuleCall& call, Rows& rows) {
  if (reduction_of(call) != LossReduction::kMean) {
    pointwise_rows(call, rows);
  }
}

// Cuts dim `at` of the tensors that have a batch, and dim `target` of targets.
struct NllSplit {
  int64_t at;
  int64_t target;
};

// Scores are [N, C] or [N, C, H, W], targets the same without C.
std::vector<NllSplit> nll_splits(const Operand& scores) {
  std::vector<NllSplit> splits;
  for (int64_t d = 0; d < scores.ndim() && scores.ndim() > 1; ++d) {
    if (d != 1) {
      splits.push_back({d, d == 0 ? 0 : d - 1});
    }
  }
  return splits;
}

// Operands: scores, targets, weight. Outputs: loss, total weight, which is 0
// where nothing is added up.
void add_nll_rows(const RuleCall& call, Rows& rows) {
  const LossReduction reduction = reduction_of(call);
  if (reduction == LossReduction::kMean) {
    return;
  }
  for (const NllSplit& split : nll_splits(call.operand(0))) {
    const Cell target = Cell::shard(split.target);
    const Cells operands{Cell::shard(split.at), target, Cell()};
    rows.add(
        reduction == LossReduction::kSum ? Cells{kSum, kSum}
                                         : Cells{target, Cell()},
        operands);
  }
}

// Operands: gradient, scores, targets, weight, total weight, by which a mean
// divides: that of the whole batch, so that a mean can be cut as well.
void add_nll_gradient_rows(const RuleCall& call, Rows& rows) {
  const LossReduction reduction = reduction_of(call);
  for (const NllSplit& split : nll_splits(call.operand(1))) {
    const Cell target = Cell::shard(split.target);
    const Cell gradient = reduction == LossReduction::kNone ? target : Cell();
    const Cell at = Cell::shard(split.at);
    rows.add({at}, {gradient, at, target, Cell(), Cell()});
    if (reduction == LossReduction::kSum) {
      // A sum does not look at the total weight.
      rows.add({at}, {gradient, at, target, Cell(), kSum});
    }
  }
}

// Losses of one term per sample of [N, C]; `scores` says which operand that is.
// Weights are per class.
RowsFn sample_loss(size_t scores) {
  return [scores](const RuleCall& call, Rows& rows) {
    const LossReduction reduction = reduction_of(call);
    if (reduction == LossReduction::kMean || call.operand(scores).ndim() != 2) {
      return;
    }
    const Cell batch = Cell::shard(0);
    const Cell single = reduction == LossReduction::kNone ? batch : Cell();
    Cells operands, outputs(call.output_count(), batch);
    for (size_t i = 0; i < call.operands().size(); ++i) {
      const auto& argument =
          call.schema()
              .arguments()[static_cast<size_t>(call.operand(i).argument)];
      const bool is_weight = argument.name() == "weight";
      operands.push_back(is_weight ? Cell() : (i < scores ? single : batch));
    }
    if (scores == 0 && reduction == LossReduction::kSum) {
      outputs[0] = kSum;
    }
    rows.add(std::move(outputs), std::move(operands));
  };
}

void add_losses(RuleTable& t) {
  t.rows(
      Names{
          "aten::mse_loss", "aten::smooth_l1_loss", "aten::huber_loss",
          "aten::soft_margin_loss", "aten::binary_cross_entropy",
          "aten::binary_cross_entropy_with_logits"},
      add_elementwise_loss_rows);
  t.rows(
       Names{
           "aten::mse_loss_backward", "aten::smooth_l1_loss_backward",
           "aten::huber_loss_backward", "aten::soft_margin_loss_backward",
           "aten::binary_cross_entropy_backward"},
       add_elementwise_loss_gradient_rows)
      .also("sum,avg: PRR->P")
      .also("sum,avg: PRRR->P");
  t.rows(
      Names{"aten::nll_loss_forward", "aten::nll_loss2d_forward"},
      add_nll_rows);
  t.rows(
       Names{"aten::nll_loss_backward", "aten::nll_loss2d_backward"},
       add_nll_gradient_rows)
      .also("sum,avg: PRRRR->P");
  // The loss of no sample is not always 0.
  t.rows(
       Names{"aten::multi_margin_loss", "aten::multilabel_margin_loss_forward"},
       sample_loss(0))
      .not_empty();
  t.rows(
       Names{
           "aten::multi_margin_loss_backward",
           "aten::multilabel_margin_loss_backward"},
       sample_loss(1))
      .also("sum,avg: PRRR->P")
      .not_empty();
  // Lengths of all samples are arguments, so that no rank can take a part.
  t.whole({"aten::_ctc_loss.*", "aten::_ctc_loss_backward.*"});
}

}  // namespace

void add_softmax_loss_rules(RuleTable& t) {
  t.along({"aten::_softmax", "aten::_log_softmax", "aten::_safe_softmax"});
  t.along({"aten::_softmax_backward_data", "aten::_log_softmax_backward_data",
           "aten::glu_backward"})
      .also("sum,avg: PR->P");
  t.along({"aten::glu", "aten::glu_jvp", "aten::glu_backward_jvp"});
  // What its mask is aligned with depends on the kind of mask.
  t.whole({"aten::_masked_softmax", "aten::_masked_softmax_backward"});
  add_losses(t);
}

}  // namespace tessera::detail::inline rules_layer
