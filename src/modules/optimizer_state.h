// What LibTorch's optimizers keep for a parameter.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace torch::optim {
class OptimizerParamState;
}

namespace tessera::detail::inline modules_layer {

/// Returns the tensors of a parameter's state that have its shape, undefined
/// ones too. Throws for an optimizer that is not known.
std::vector<at::Tensor*> state_tensors(
    const char* call, torch::optim::OptimizerParamState& state);

}  // namespace tessera::detail::inline modules_layer
