#include <tensor/call/local_kernel.h>

namespace tessera::detail::inline tensor_layer {

namespace {

// Of (4, 6) over 4 ranks a shard is (1, 6): its first dim is no dim of one
// index.
bool has_dim_split_to_one(
    const std::vector<int64_t>& unsharded, const std::vector<int64_t>& shard) {
  for (size_t d = 0; d < unsharded.size(); ++d) {
    if (shard[d] == 1 && unsharded[d] != 1) {
      return true;
    }
  }
  return false;
}

}  // namespace

LocalKernel local_kernel(RunBy by) {
  return op_registry().local_kernels[static_cast<size_t>(by)];
}

LocalKernel local_view_kernel(
    const Rule& rule, const Layout& operand,
    const std::vector<int64_t>& coordinate) {
  return rule.local != RunBy::kOperator &&
                 has_dim_split_to_one(
                     operand.shape(), operand.local_shape(coordinate))
             ? local_kernel(rule.local)
             : nullptr;
}

void finish_local(const OpCall& call, const at::Tensor& result) {
  const auto& arguments = call.schema().arguments();
  if (!arguments.empty() && arguments.back().is_out()) {
    const at::Tensor out = call.argument(call.size() - 1).toTensor();
    out.resize_(result.sizes());
    out.copy_(result);
    return call.finish(out);
  }
  call.finish(result);
}

}  // namespace tessera::detail::inline tensor_layer
