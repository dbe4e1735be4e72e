// How a rank runs its part of a call where that is not the operator itself on
// its shards: a mean of a part is no part of the mean.
//
// A row of a rule names such a kernel (rules/rule.h, Row::local).
#pragma once

#include <vector>

#include <rules/rule_entry.h>
#include <tensor/call/op_registry.h>
#include <tessera/layout/layout.h>

namespace tessera::detail::inline tensor_layer {

/// A call on one rank's shards.
struct LocalKernelCall {
  /// Tensors are shards; arguments that are shapes are those of shards.
  const OpCall& call;
  /// The layouts of the operands, numbered as in a rule; of a tensor that is
  /// not there, an empty one.
  const std::vector<Layout>& operands;
  /// The rank's place in the mesh of those layouts.
  const std::vector<int64_t>& coordinate;
};

/// Leaves a result for a kernel, in the out tensor where the call has one.
void finish_local(const OpCall& call, const at::Tensor& result);

/// Returns the kernel that runs a rank's part; nullptr for the operator itself.
/// The registry has them, and run/local_kernels.cpp adds them.
LocalKernel local_kernel(RunBy by);

/// Returns the kernel that shows a view of the shard at `coordinate` of a
/// tensor that lies as `operand` says; nullptr for the operator itself.
LocalKernel local_view_kernel(
    const Rule& rule, const Layout& operand,
    const std::vector<int64_t>& coordinate);

}  // namespace tessera::detail::inline tensor_layer
