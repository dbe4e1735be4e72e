// What the demo notes down about its sharded run: who holds what, and what was
// communicated.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <tessera/comm/comm_log.h>

#include "demo.h"

namespace tessera::cli {

/// Describes a parameter on a mesh (dp, tp).
DemoParameter describe(const std::string& name, const at::Tensor& parameter);

/// Sums up the collectives of one cause, kind, mesh dim and direction; the
/// largest sum first.
std::vector<DemoTraffic> sum_up(const std::vector<CommLogEntry>& entries);

}  // namespace tessera::cli
