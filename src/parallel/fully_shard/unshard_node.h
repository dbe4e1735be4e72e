// The history of a group's gathered tensors.
#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

namespace tessera::detail::inline parallel_layer {

/// Takes the gradients of a group's gathered tensors, in the order of its
/// members, and returns those of the parameters.
struct GradientReducer {
  virtual ~GradientReducer() = default;
  virtual torch::autograd::variable_list reduce(
      size_t group, torch::autograd::variable_list&& gradients) = 0;
};

/// Makes `taken` the results of one node whose inputs are `leaves`: the engine
/// runs it when the gradients of all of them that a backward pass reaches are
/// there, which is the end of the group's backward. An undefined leaf takes no
/// gradient, and its tensor gets no history.
void record_unshard(
    const std::vector<at::Tensor>& leaves, const std::vector<at::Tensor>& taken,
    std::weak_ptr<GradientReducer> reducer, size_t group);

}  // namespace tessera::detail::inline parallel_layer
