#include <tensor/uses/cross_entropy.h>

#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/nll_loss_backward.h>
#include <ATen/ops/nll_loss_forward.h>
#include <ATen/ops/where.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <comm/engine/inherited_modes.h>
#include <tensor/call/observer.h>
#include <tensor/call/op_call.h>
#include <tensor/decompositions/decomposed_call.h>
#include <tensor/impl/sharded_impl.h>
#include <tensor/uses/smoothed_loss.h>
#include <tessera/layout/notation.h>
#include <torch/csrc/autograd/custom_function.h>

namespace tessera::detail::inline tensor_layer {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kMean = 1;

// Of logits [N, C] and targets [N].
class CrossEntropy : public torch::autograd::Function<CrossEntropy> {
 public:
  static at::Tensor forward(
      AutogradContext* context, const at::Tensor& logits,
      const at::Tensor& target, const std::optional<at::Tensor>& weight,
      int64_t reduction, int64_t ignored) {
    const at::Tensor scores = at::_log_softmax(logits, 1, false);
    auto [loss, total] =
        at::nll_loss_forward(scores, target, weight, reduction, ignored);
    context->save_for_backward(
        {scores, target, weight.value_or(at::Tensor()), total});
    context->saved_data["reduction"] = reduction;
    context->saved_data["ignored"] = ignored;
    return loss;
  }

  static variable_list backward(
      AutogradContext* context, const variable_list& gradients) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        !c10::GradMode::is_enabled(),
        "LossParallel: cross entropy has one derivative; got create_graph; "
        "take higher ones outside of a LossParallel");
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& scores = saved[0];
    const at::Tensor& target = saved[1];
    const at::Tensor& weight = saved[2];
    const int64_t reduction = context->saved_data["reduction"].toInt();
    const int64_t ignored = context->saved_data["ignored"].toInt();
    const at::Tensor chosen = at::nll_loss_backward(
        gradients[0], scores, target,
        weight.defined() ? std::optional(weight) : std::nullopt, reduction,
        ignored, saved[3]);
    // What `chosen` adds up to along the classes, without its sign. Halves
    // would lose the difference of an exponential and 1.
    const c10::ScalarType computed = sum_type(scores.scalar_type());
    const at::Tensor counts = target.ne(ignored);
    at::Tensor sum = gradients[0].to(computed);
    if (reduction == kMean) {
      sum = sum / saved[3];
    }
    if (weight.defined()) {
      sum = sum * weight.index_select(0, target * counts);
    }
    sum = at::where(counts, sum, 0).unsqueeze(1);
    return {
        scores.to(computed).exp().mul_(sum).add_(chosen).to(
            scores.scalar_type()),
        {},
        {},
        {},
        {}};
  }
};

bool shards_dim(const at::Tensor& t, int64_t dim) {
  for (const Placement& p : spec_of(t).placements()) {
    if (p.is_shard(dim)) {
      return true;
    }
  }
  return false;
}

bool run_loss_parallel(const OpCall& call) {
  if (mode_value<bool>(Mode::kLossParallel) == nullptr ||
      CallObserver::current() != nullptr) {
    return false;
  }
  at::Tensor logits = call.argument(0).toTensor();
  const at::Tensor target = call.argument(1).toTensor();
  if (!is_sharded(logits)) {
    return false;
  }
  const int64_t classes = logits.dim() < 2 ? 0 : 1;
  TORCH_CHECK_VALUE(
      logits.dim() > 0 && shards_dim(logits, classes),
      "LossParallel: cross_entropy on ", to_string(spec_of(logits).mesh()),
      ": the logits must be cut along their classes, dim ", classes, "; got ",
      to_string(spec_of(logits).placements()),
      "; make the last layer ColwiseParallel() without output_layouts, or end "
      "the LossParallel first");
  const bool is_plain_case = logits.dim() == 2 && target.dim() == 1 &&
                             !target.is_floating_point() &&
                             call.argument(5).toDouble() == 0;
  if (!is_plain_case) {
    return false;  // no gather either
  }
  if (at::autocast::is_autocast_enabled(logits.device().type()) &&
      logits.scalar_type() != at::kDouble) {
    logits = logits.to(at::kFloat);  // autocast lists what we are made of
  }
  const at::Tensor loss = CrossEntropy::apply(
      logits, target, call.argument(2).toOptional<at::Tensor>(),
      call.argument(3).toInt(), call.argument(4).toInt());
  call.finish(loss);
  return true;
}

}  // namespace

bool set_loss_parallel(bool on) {
  static const auto yes = std::make_shared<const bool>(true);
  return exchange_mode(Mode::kLossParallel, on ? yes : nullptr) != nullptr;
}

void add_cross_entropy(OpRegistry& ops) {
  ops.at("aten::cross_entropy_loss").composite = [](const OpCall& call) {
    return run_loss_parallel(call) || run_smoothed_loss(call);
  };
}

}  // namespace tessera::detail::inline tensor_layer
