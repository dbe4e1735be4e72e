#include <tensor/run/local_views.h>

#include <ATen/ops/squeeze.h>

namespace tessera::detail::inline tensor_layer {

namespace {

bool returns_view(const OpCall& call) {
  return call.schema().returns()[0].alias_info() != nullptr;
}

}  // namespace

void local_squeeze(const LocalKernelCall& local) {
  const OpCall& call = local.call;
  const std::vector<int64_t>& unsharded = local.operands[0].shape();
  const at::Tensor self = call.argument(0).toTensor();
  const bool is_named = call.schema().argumentIndexWithName("dim").has_value();
  std::vector<int64_t> dims;
  for (int64_t d = 0; d < self.dim(); ++d) {
    const bool named =
        !is_named || wrap_dim(call.argument(1).toInt(), self.dim()) == d;
    if (named && unsharded[static_cast<size_t>(d)] == 1) {
      dims.push_back(d);
    }
  }
  const at::Tensor shown = at::squeeze(self, dims);
  finish_local(call, returns_view(call) ? shown : shown.clone());
}

}  // namespace tessera::detail::inline tensor_layer
