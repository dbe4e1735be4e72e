// Checks of gradients where they arrive; see tessera/tensor/gradient_check.h.
#pragma once

#include <string>

#include <ATen/core/Tensor.h>
#include <tessera/tensor/dtensor_spec.h>
#include <torch/csrc/autograd/edge.h>

namespace tessera::detail::inline tensor_layer {

/// Tells whether this thread compares gradients.
bool checks_gradients();

/// Compares the copies of a sharded gradient; `what` opens the error's line.
void check_gradient(const at::Tensor& gradient, const std::string& what);

/// Returns the tensor's name in quotes and its spec, or its spec alone.
std::string name_of(const at::Tensor& tensor);
/// Returns the name of the tensor whose gradient goes along an edge: a leaf's
/// own, else the node that made it.
std::string name_of_source(
    const torch::autograd::Edge& edge, const DTensorSpec& spec);

}  // namespace tessera::detail::inline tensor_layer
