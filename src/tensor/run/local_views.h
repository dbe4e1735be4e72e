// How a rank shows its part of a view where the operator on the shard would
// show something else.
#pragma once

#include <vector>

#include <rules/rule_entry.h>
#include <tensor/call/local_kernel.h>

namespace tessera::detail {

/// Returns the kernel that shows a view of the shard at `coordinate` of a
/// tensor that lies as `operand` says; nullptr for the operator itself.
LocalKernel local_view_kernel(
    const Rule& rule, const Layout& operand,
    const std::vector<int64_t>& coordinate);

/// squeeze, squeeze.dim: drops the dims of one index in the whole tensor, not
/// those of which this rank happens to hold one.
void local_squeeze(const LocalCall& local);

}  // namespace tessera::detail
