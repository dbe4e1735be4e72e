// Activations that are computed again in the backward pass instead of kept.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <tessera/export.h>

namespace tessera {

struct ActivationCheckpointOptions {
  /// Results of communication are kept, so that nothing is sent twice: those of
  /// redistribute(), and of what calls on sharded tensors move.
  bool keep_moved = true;
  /// Operators whose results are kept: names with globs, "aten::mm",
  /// "aten::_scaled_dot_product*".
  std::vector<std::string> keep = {};
  /// What is saved for the backward pass must be the same in both runs: shapes,
  /// dtypes, layouts, versions and the random numbers drawn before.
  bool check = true;
};

using CheckpointFn =
    std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

/// Runs `fn`, and lets autograd save nothing of what is computed inside: when
/// the backward pass asks for it, `fn` runs again, as far as needed, with the
/// inputs, random numbers and modes of the first time. Gradients are those
/// without, bit for bit, also of autograd::grad() and of tensors that `fn`
/// captures. `fn` must do the same each time and change nothing outside; all
/// ranks call it alike. Without grad mode it just runs.
/// Example: x = activation_checkpoint(
///     [&](at::Tensor h) { return block->forward(h); }, x);
TESSERA_API at::Tensor activation_checkpoint(
    const std::function<at::Tensor(at::Tensor)>& fn, at::Tensor input,
    const ActivationCheckpointOptions& options = {});
TESSERA_API std::vector<at::Tensor> activation_checkpoint(
    const CheckpointFn& fn, std::vector<at::Tensor> inputs,
    const ActivationCheckpointOptions& options = {});

}  // namespace tessera
