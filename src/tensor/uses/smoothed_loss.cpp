#include <tensor/uses/smoothed_loss.h>

#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/nll_loss2d_backward.h>
#include <ATen/ops/nll_loss_backward.h>
#include <ATen/ops/nll_loss_nd.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <tensor/decompositions/decomposed_call.h>
#include <tensor/impl/sharded_impl.h>
#include <tensor/move/redistribute_shard.h>
#include <tensor/move/view_copies.h>
#include <torch/csrc/autograd/custom_function.h>

namespace tessera::detail::inline tensor_layer {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// What does not change between forward and backward.
struct Labels {
  at::Tensor target;
  at::Tensor weight;  // per class; undefined for ones
  int64_t reduction;
  int64_t ignored;
  double smoothing;
  int64_t classes;

  at::Tensor counts() const { return target.ne(ignored); }

  // The weight of each target; 0 where it is ignored.
  at::Tensor weights(c10::ScalarType dtype) const {
    const at::Tensor all = counts();
    return weight.defined() ? weight.to(dtype)
                                      .index_select(0, (target * all).flatten())
                                      .reshape(target.sizes()) *
                                  all
                            : all.to(dtype);
  }
  // The weights of classes, to be broadcast to scores.
  at::Tensor class_weights(int64_t ndim) const {
    std::vector<int64_t> shape(static_cast<size_t>(ndim), 1);
    shape[1] = classes;
    return weight.view(shape);
  }
  double share_of_class() const {
    return smoothing / static_cast<double>(classes);
  }
};

// The derivative of the chosen scores, -weight * gradient, of scores with any
// number of dims.
at::Tensor chosen_gradient(
    const Labels& labels, const at::Tensor& gradient,
    const at::Tensor& scores) {
  const auto weight =
      labels.weight.defined() ? std::optional(labels.weight) : std::nullopt;
  const at::Tensor total = at::zeros({}, scores.options().device(at::kCPU));
  if (scores.dim() == 2) {
    return at::nll_loss_backward(
        gradient, scores, labels.target, weight, at::Reduction::None,
        labels.ignored, total);
  }
  const std::vector<int64_t> rows{scores.size(0), 1, -1};
  return at::nll_loss2d_backward(
             gradient.reshape(rows),
             scores.reshape({scores.size(0), scores.size(1), 1, -1}),
             labels.target.reshape(rows), weight, at::Reduction::None,
             labels.ignored, total)
      .reshape(scores.sizes());
}

// Tells the gradient of scores what its rows add up to.
void tell_sums(const at::Tensor& gradient, const at::Tensor& sums) {
  const DTensorSpec& spec = spec_of(gradient);
  if (!spec.has_shard()) {
    return;
  }
  Placements rows = without_partials(spec.placements());
  for (Placement& p : rows) {
    p = p.is_shard(1) ? Replicate() : p;
  }
  const at::Tensor unsharded = sums.detach();
  keep_sums(
      gradient, 1,
      is_sharded(unsharded)
          ? redistribute_shard(
                refreshed_shard(unsharded), spec_of(unsharded), rows)
          : unsharded);
}

// Of scores, the logarithms of softmax along dim 1.
class SmoothedLoss : public torch::autograd::Function<SmoothedLoss> {
 public:
  static at::Tensor forward(
      AutogradContext* context, const at::Tensor& scores,
      const Labels& labels) {
    const auto weight =
        labels.weight.defined() ? std::optional(labels.weight) : std::nullopt;
    const at::Tensor chosen = at::nll_loss_nd(
        scores, labels.target, weight, at::Reduction::None, labels.ignored);
    const at::Tensor weighed = labels.weight.defined()
                                   ? scores * labels.class_weights(scores.dim())
                                   : scores;
    const at::Tensor mean =
        weighed.sum(1).masked_fill(labels.counts().logical_not(), 0);
    at::Tensor loss =
        chosen * (1 - labels.smoothing) - mean * labels.share_of_class();
    at::Tensor part;  // of one target in the mean; replicated, for backward too
    if (labels.reduction != at::Reduction::None) {
      loss = loss.sum();
    }
    if (labels.reduction == at::Reduction::Mean) {
      part = labels.weights(sum_type(scores.scalar_type())).sum().reciprocal();
      loss = (loss * part).to(scores.scalar_type());
    }
    context->save_for_backward({scores, labels.target, labels.weight, part});
    context->saved_data["reduction"] = labels.reduction;
    context->saved_data["ignored"] = labels.ignored;
    context->saved_data["smoothing"] = labels.smoothing;
    return loss;
  }

  static variable_list backward(
      AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& scores = saved[0];
    const Labels labels{
        .target = saved[1],
        .weight = saved[2],
        .reduction = context->saved_data["reduction"].toInt(),
        .ignored = context->saved_data["ignored"].toInt(),
        .smoothing = context->saved_data["smoothing"].toDouble(),
        .classes = scores.size(1)};
    const c10::ScalarType dtype = scores.scalar_type();
    const c10::ScalarType computed = sum_type(dtype);
    at::Tensor each = gradients[0].to(computed);
    each = saved[3].defined() ? each * saved[3] : each;
    const at::Tensor share = at::where(labels.counts(), each, 0);
    const at::Tensor column = share.unsqueeze(1).to(dtype);
    const at::Tensor chosen = chosen_gradient(
        labels, (share * (1 - labels.smoothing)).to(dtype), scores);
    const at::Tensor gradient =
        labels.weight.defined()
            ? chosen.addcmul(
                  column, labels.class_weights(scores.dim()),
                  -labels.share_of_class())
            : chosen.sub(column, labels.share_of_class());
    const at::Tensor of_classes =
        labels.weight.defined()
            ? labels.weight.to(computed).sum() * labels.share_of_class()
            : labels.counts().to(computed) * labels.smoothing;
    const at::Tensor parts =
        labels.weights(computed) * (1 - labels.smoothing) + of_classes;
    tell_sums(gradient, (share * parts).neg().unsqueeze(1));
    return {gradient, {}};
  }
};

// Per class; undefined where none is given.
at::Tensor weight_of(const OpCall& call) {
  return call.argument(2).isTensor() ? call.argument(2).toTensor()
                                     : at::Tensor();
}

// This rank has all of a tensor.
bool is_unsharded(const at::Tensor& t) {
  return !t.defined() || !is_sharded(t) || spec_of(t).is_replicated();
}

bool is_smoothed_loss(const OpCall& call) {
  const at::Tensor logits = call.argument(0).toTensor();
  const at::Tensor target = call.argument(1).toTensor();
  const at::Tensor weight = weight_of(call);
  const double smoothing = call.argument(5).toDouble();
  const bool is_wanted = c10::GradMode::is_enabled() &&
                         logits.requires_grad() && smoothing > 0 &&
                         smoothing <= 1;
  return is_wanted && is_sharded(logits) && logits.dim() >= 2 &&
         logits.numel() != 0 && !target.is_floating_point() &&
         target.dim() == logits.dim() - 1 && is_unsharded(weight) &&
         !(weight.defined() && weight.requires_grad()) &&
         !mesh_dims_of_shards(spec_of(logits).placements(), 1).empty();
}

}  // namespace

bool run_smoothed_loss(const OpCall& call) {
  if (!is_smoothed_loss(call)) {
    return false;
  }
  const at::Tensor logits = call.argument(0).toTensor();
  call.finish(SmoothedLoss::apply(
      at::log_softmax(logits, 1, logits.scalar_type()),
      Labels{
          .target = call.argument(1).toTensor(),
          .weight = weight_of(call),
          .reduction = call.argument(3).toInt(),
          .ignored = call.argument(4).toInt(),
          .smoothing = call.argument(5).toDouble(),
          .classes = logits.size(1)}));
  return true;
}

}  // namespace tessera::detail::inline tensor_layer
