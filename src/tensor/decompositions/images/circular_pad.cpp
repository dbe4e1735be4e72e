// Circular padding: each dim is put together of its last rows, itself and its
// first rows, which stay where they lie; cat() sends what changes its rank.
// ATen's own writes into slices of a new tensor, which has no cut to follow.
#include <ATen/ops/cat.h>
#include <tensor/decompositions/table.h>
#include <tensor/impl/sharded_impl.h>

namespace tessera::detail::inline tensor_layer {

namespace {

bool pad_circular(const OpCall& call) {
  at::Tensor x = call.argument(0).toTensor();
  const auto pads = call.argument(1).toDimVector();
  const auto count = static_cast<int64_t>(pads.size());
  if (!is_sharded(x) || count % 2 != 0 || count / 2 + 2 != x.dim()) {
    return false;  // ATen says what is wrong
  }
  for (int64_t i = 0; i < count; ++i) {
    const int64_t pad = pads[static_cast<size_t>(i)];
    if (pad < 0 || pad > x.size(x.dim() - 1 - i / 2)) {
      return false;
    }
  }
  for (int64_t i = 0; i < count; i += 2) {
    const int64_t dim = x.dim() - 1 - i / 2;
    const int64_t before = pads[static_cast<size_t>(i)];
    const int64_t after = pads[static_cast<size_t>(i + 1)];
    std::vector<at::Tensor> parts{x};
    if (before > 0) {
      parts.insert(parts.begin(), x.narrow(dim, x.size(dim) - before, before));
    }
    if (after > 0) {
      parts.push_back(x.narrow(dim, 0, after));
    }
    x = parts.size() == 1 ? x : at::cat(parts, dim);
  }
  call.finish(x.is_same(call.argument(0).toTensor()) ? x.clone() : x);
  return true;
}

}  // namespace

void add_circular_decompositions(OpRegistry& ops) {
  ops.at("aten::_pad_circular").composite = pad_circular;
}

}  // namespace tessera::detail::inline tensor_layer
