#include <tessera/parallel/loss_scaler.h>

#include <cmath>
#include <map>

#include <ATen/ops/isfinite.h>
#include <ATen/ops/stack.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <parallel/values_over_meshes.h>
#include <tessera/comm/world.h>
#include <torch/optim/optimizer.h>

namespace tessera {

namespace {

void check_scale(double scale) {
  TORCH_CHECK_VALUE(
      scale > 0 && std::isfinite(scale), "LossScaler, rank ", rank(),
      ": the scale must be above zero and finite; got ", scale);
}

// Returns 1 where an element of a shard is not finite, else 0.
at::Tensor has_wrong(const std::vector<at::Tensor>& shards) {
  std::vector<at::Tensor> finite;
  for (const at::Tensor& shard : shards) {
    finite.push_back(at::isfinite(shard).all());
  }
  return at::stack(finite).all().logical_not().to(at::kDouble);
}

}  // namespace

struct LossScaler::Impl {
  LossScalerOptions options;
  LossScalerState state;
  // Parameters that are unscaled since the last update, and whether all of
  // their call were finite.
  std::map<const c10::TensorImpl*, bool> unscaled = {};
};

LossScaler::LossScaler(const LossScalerOptions& options)
    : impl_(std::make_unique<Impl>(
          Impl{options, {.scale = options.initial, .good_steps = 0}})) {
  check_scale(options.initial);
  TORCH_CHECK_VALUE(
      options.growth > 1 && std::isfinite(options.growth), "LossScaler, rank ",
      rank(), ": growth must be above 1; got ", options.growth);
  TORCH_CHECK_VALUE(
      options.backoff > 0 && options.backoff < 1, "LossScaler, rank ", rank(),
      ": backoff must be between 0 and 1; got ", options.backoff);
  TORCH_CHECK_VALUE(
      options.interval > 0, "LossScaler, rank ", rank(),
      ": interval must be at least 1; got ", options.interval);
}

LossScaler::~LossScaler() = default;

at::Tensor LossScaler::scale(const at::Tensor& loss) const {
  return loss.mul(impl_->state.scale);
}

bool LossScaler::unscale(const std::vector<at::Tensor>& parameters) {
  const at::NoGradGuard no_grad;
  for (const at::Tensor& parameter : parameters) {
    TORCH_CHECK_VALUE(
        impl_->unscaled.count(parameter.unsafeGetTensorImpl()) == 0,
        "LossScaler::unscale, rank ", rank(),
        ": a gradient is unscaled already, of shape ", parameter.sizes(),
        "; call update() at the end of each iteration");
  }
  const std::vector<at::Tensor> gradients =
      detail::reduced_gradients("LossScaler::unscale", parameters);
  detail::scale_gradients(gradients, 1 / impl_->state.scale);
  detail::ValuesOverMeshes wrong(ReduceOp::kMax, /*copies=*/true);
  wrong.add(gradients, &has_wrong);
  const at::Tensor any = wrong.take(impl_->options.stages);
  const bool finite = !any.defined() || any.item<double>() == 0;
  for (const at::Tensor& parameter : parameters) {
    impl_->unscaled.emplace(parameter.unsafeGetTensorImpl(), finite);
  }
  return finite;
}

bool LossScaler::unscale_once(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> scaled;
  bool finite = true;
  for (const at::Tensor& parameter : parameters) {
    const auto found = impl_->unscaled.find(parameter.unsafeGetTensorImpl());
    if (found == impl_->unscaled.end()) {
      scaled.push_back(parameter);
    } else {
      finite = finite && found->second;
    }
  }
  return scaled.empty() ? finite : unscale(scaled) && finite;
}

bool LossScaler::step(torch::optim::Optimizer& optimizer) {
  std::vector<at::Tensor> parameters;
  for (const auto& group : optimizer.param_groups()) {
    parameters.insert(
        parameters.end(), group.params().begin(), group.params().end());
  }
  const bool finite = unscale_once(parameters);
  if (finite) {
    optimizer.step();
  }
  return finite;
}

void LossScaler::update() {
  TORCH_CHECK_VALUE(
      !impl_->unscaled.empty(), "LossScaler::update, rank ", rank(),
      ": no gradient was unscaled since the last update; call step() or "
      "unscale() first");
  bool finite = true;
  for (const auto& [parameter, of_call] : impl_->unscaled) {
    finite = finite && of_call;
  }
  impl_->unscaled.clear();
  LossScalerState& state = impl_->state;
  if (!finite) {
    state = {.scale = state.scale * impl_->options.backoff, .good_steps = 0};
  } else if (++state.good_steps == impl_->options.interval) {
    const double grown = state.scale * impl_->options.growth;
    state = {
        .scale = std::isfinite(grown) ? grown : state.scale, .good_steps = 0};
  }
}

LossScalerState LossScaler::state() const {
  return impl_->state;
}

void LossScaler::set_state(const LossScalerState& state) {
  check_scale(state.scale);
  TORCH_CHECK_VALUE(
      state.good_steps >= 0, "LossScaler::set_state, rank ", rank(),
      ": good_steps must not be negative; got ", state.good_steps);
  impl_->state = state;
}

}  // namespace tessera
