// Executes redistribution plans: each step is read off its layouts.
#pragma once

#include <ATen/core/Tensor.h>
#include <tessera/comm/device_mesh.h>
#include <tessera/plan/redistribute_plan.h>

namespace tessera::detail {

/// Returns this rank's shard in the plan's target layout, given the one in its
/// source layout; both are on `mesh`. May share memory with `shard` where
/// nothing moves.
at::Tensor execute(
    const RedistributePlan& plan, const at::Tensor& shard,
    const DeviceMesh& mesh);

/// Turns a replicated value into the addend of one coordinate; exact.
at::Tensor addend_of(const at::Tensor& value, ReduceOp op, int64_t coordinate);

}  // namespace tessera::detail
