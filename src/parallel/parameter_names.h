// Names of a module's parameters, for errors.
#pragma once

#include <tessera/tensor/gradient_check.h>
#include <torch/nn/module.h>

namespace tessera::detail::inline parallel_layer {

/// Names the parameters by their paths in the module.
inline void name_parameters(const torch::nn::Module& module) {
  for (const auto& parameter : module.named_parameters()) {
    if (parameter.value().defined()) {
      name_tensor(parameter.value(), parameter.key());
    }
  }
}

}  // namespace tessera::detail::inline parallel_layer
