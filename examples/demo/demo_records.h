// What the demo notes down about its sharded run: who holds what, and what was
// communicated.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <tessera/comm/comm_log.h>
#include <torch/optim/adamw.h>

#include "demo.h"

namespace tessera::cli {

/// Describes a parameter on a mesh (dp, tp) by what the ranks along one mesh
/// dim hold.
DemoParameter describe(
    const std::string& name, const at::Tensor& parameter, int64_t mesh_dim);

/// Returns the bytes of a training that this rank holds: parameters, gradients
/// and AdamW's state.
int64_t held_bytes(const torch::optim::AdamW& optimizer);

/// Sums up the collectives of one cause, kind, mesh dim and direction; the
/// largest sum first.
std::vector<DemoTraffic> sum_up(const std::vector<CommLogEntry>& entries);

}  // namespace tessera::cli
