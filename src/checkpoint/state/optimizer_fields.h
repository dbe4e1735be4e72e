// What the optimizers of torch::optim keep, field by field, under the names
// that PyTorch gives them.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <tessera/checkpoint/state_dict.h>
#include <torch/optim/optimizer.h>

namespace tessera::detail::inline checkpoint_layer {

/// The state of one parameter. Pointers lead into the optimizer's own object.
struct ParameterFields {
  std::vector<std::pair<std::string, at::Tensor*>> tensors;
  /// The count of steps; null where there is none.
  int64_t* step = nullptr;
};

/// Returns the fields of a state; throws for an optimizer that is not known.
ParameterFields fields_of(torch::optim::OptimizerParamState& state);

/// Makes the state that the first step() of a group with these options makes
/// for a parameter, before it has changed it; null where it makes none (SGD
/// without momentum).
std::unique_ptr<torch::optim::OptimizerParamState> make_state(
    torch::optim::OptimizerOptions& options, const at::Tensor& parameter);

/// Tells the optimizer whose state belongs to no parameter: lbfgs_state.h.
bool is_lbfgs(const torch::optim::OptimizerOptions& options);

/// Returns the options of a group; what load() reads is written into them.
checkpoint::StateDict options_dict(torch::optim::OptimizerOptions& options);

}  // namespace tessera::detail::inline checkpoint_layer
