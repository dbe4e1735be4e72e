// What LBFGS keeps: one state for all its parameters, whose lists of flat
// tensors grow with the steps, under the names that PyTorch gives it:
//
//   optimizer.state.FIRST.n_iter       7
//   optimizer.state.FIRST.d            all parameters in one dim
//   optimizer.state.FIRST.old_dirs.0   and so on, up to history_size
#pragma once

#include <ATen/core/Tensor.h>
#include <tessera/checkpoint/state_dict.h>
#include <torch/optim/optimizer.h>

namespace tessera::detail::inline checkpoint_layer {

/// Returns the state of an LBFGS optimizer, which `first`, its first parameter,
/// has; absent where it has not stepped yet. load() makes it anew, as long as
/// the checkpoint's, and gives it to the optimizer.
checkpoint::StateValue lbfgs_state(
    torch::optim::Optimizer& optimizer, const at::Tensor& first);

}  // namespace tessera::detail::inline checkpoint_layer
