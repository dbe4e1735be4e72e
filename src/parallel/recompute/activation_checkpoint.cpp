#include <tessera/parallel/activation_checkpoint.h>

#include <algorithm>
#include <utility>

#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <parallel/recompute/recomputed_region.h>
#include <tessera/comm/world.h>

namespace tessera {

namespace {

void check_region_results(
    const std::vector<at::Tensor>& inputs,
    const std::vector<at::Tensor>& results) {
  bool any_needs_grad = false;
  for (size_t i = 0; i < results.size(); ++i) {
    any_needs_grad =
        any_needs_grad || (results[i].defined() && results[i].requires_grad());
    for (size_t k = 0; k < inputs.size(); ++k) {
      TORCH_CHECK_VALUE(
          !results[i].defined() || !results[i].is_same(inputs[k]),
          "activation_checkpoint, rank ", rank(), ": result ", i,
          " of fn is its input ", k,
          " itself; use the input outside of fn instead, or return a view");
    }
  }
  TORCH_CHECK_VALUE(
      any_needs_grad, "activation_checkpoint, rank ", rank(),
      ": no result of fn requires a gradient, so nothing would be computed "
      "again; got ",
      results.size(), " results; call fn itself, or hold a torch::NoGradGuard");
}

}  // namespace

std::vector<at::Tensor> activation_checkpoint(
    const CheckpointFn& fn, std::vector<at::Tensor> inputs,
    const ActivationCheckpointOptions& options) {
  TORCH_CHECK_VALUE(
      fn != nullptr, "activation_checkpoint, rank ", rank(),
      ": fn is empty; pass a function of the inputs");
  if (!c10::GradMode::is_enabled()) {
    return fn(inputs);
  }
  const auto region =
      std::make_shared<detail::RecomputedRegion>(fn, inputs, options);
  std::vector<at::Tensor> results = region->forward(inputs);
  check_region_results(inputs, results);
  return results;
}

at::Tensor activation_checkpoint(
    const std::function<at::Tensor(at::Tensor)>& fn, at::Tensor input,
    const ActivationCheckpointOptions& options) {
  TORCH_CHECK_VALUE(
      fn != nullptr, "activation_checkpoint, rank ", rank(),
      ": fn is empty; pass a function of the input");
  const CheckpointFn of_one = [fn](const std::vector<at::Tensor>& inputs) {
    return std::vector<at::Tensor>{fn(inputs[0])};
  };
  return activation_checkpoint(
      of_one, std::vector<at::Tensor>{std::move(input)}, options)[0];
}

}  // namespace tessera
