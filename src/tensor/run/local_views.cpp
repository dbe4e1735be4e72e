#include <tensor/run/local_views.h>

#include <ATen/ops/squeeze.h>

namespace tessera::detail {

namespace {

// Of (4, 6) over 4 ranks a shard is (1, 6): its first dim is no dim of one
// index.
bool has_dim_cut_to_one(
    const std::vector<int64_t>& whole, const std::vector<int64_t>& shard) {
  for (size_t d = 0; d < whole.size(); ++d) {
    if (shard[d] == 1 && whole[d] != 1) {
      return true;
    }
  }
  return false;
}

bool returns_view(const OpCall& call) {
  return call.schema().returns()[0].alias_info() != nullptr;
}

}  // namespace

LocalKernel local_view_kernel(
    const Rule& rule, const Layout& operand,
    const std::vector<int64_t>& coordinate) {
  return !rule.local.empty() &&
                 has_dim_cut_to_one(
                     operand.shape(), operand.local_shape(coordinate))
             ? local_kernel(rule.local)
             : nullptr;
}

void local_squeeze(const LocalCall& local) {
  const OpCall& call = local.call;
  const std::vector<int64_t>& whole = local.operands[0].shape();
  const at::Tensor self = call.argument(0).toTensor();
  const bool is_named = call.schema().argumentIndexWithName("dim").has_value();
  std::vector<int64_t> dims;
  for (int64_t d = 0; d < self.dim(); ++d) {
    const bool named =
        !is_named || wrap_dim(call.argument(1).toInt(), self.dim()) == d;
    if (named && whole[static_cast<size_t>(d)] == 1) {
      dims.push_back(d);
    }
  }
  const at::Tensor shown = at::squeeze(self, dims);
  finish_local(call, returns_view(call) ? shown : shown.clone());
}

}  // namespace tessera::detail
