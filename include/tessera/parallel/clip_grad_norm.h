// The norm of all gradients of a model, whatever their placements and meshes.
#pragma once

#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <tessera/comm/communicator.h>
#include <tessera/export.h>

namespace tessera {

struct ClipOptions {
  double norm_type = 2.0;  // infinity for the largest magnitude
  /// A norm that is not finite is an error, and no gradient changes.
  bool error_if_nonfinite = false;
  /// A group with one rank of each stage of a pipeline: norms are those over
  /// all stages, taken in rank order, so that a step repeats bit for bit.
  std::optional<Communicator> stages = {};
};

/// Scales the gradients of `parameters` down, in place, so that their common
/// norm is at most `max_norm`, and returns the norm that they had: plain, equal
/// on all ranks. Parameters may be plain, in any placements, and on several
/// meshes that this rank is in. One small reduction per mesh and set of cut
/// mesh dims.
/// Example: clip_grad_norm(model->parameters(), 1.0).
TESSERA_API at::Tensor clip_grad_norm(
    const std::vector<at::Tensor>& parameters, double max_norm,
    const ClipOptions& options = {});

}  // namespace tessera
