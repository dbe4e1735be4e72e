#include <tensor/run/local_views.h>

#include <algorithm>
#include <numeric>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/split_with_sizes.h>
#include <ATen/ops/squeeze.h>
#include <ATen/ops/tril.h>
#include <ATen/ops/triu.h>

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

namespace {

// What this rank holds of an index of a dim: all or nothing.
at::Tensor selected(
    const LocalKernelCall& local, const at::Tensor& self, int64_t dim,
    int64_t index) {
  const Layout& layout = local.operands[0];
  int64_t before = 0;  // indices of this rank in earlier runs
  for (const Run& run : layout.runs(dim, local.coordinate)) {
    if (run.begin <= index && index < run.end) {
      return self.select(dim, before + index - run.begin);
    }
    before += run.length();
  }
  // Nothing, in the shape that the ragged layout of the result says.
  const at::Tensor none = self.narrow(*unsharded_dim_beside(layout, dim), 0, 0);
  std::vector<int64_t> shape = none.sizes().vec();
  shape.erase(shape.begin() + dim);
  return none.view(shape);
}

}  // namespace

// Of select(), or of unbind(), which selects every index.
void local_select(const LocalKernelCall& local) {
  const OpCall& call = local.call;
  const at::Tensor self = call.argument(0).toTensor();
  const int64_t dim = wrap_dim(call.argument(1).toInt(), self.dim());
  const int64_t size = local.operands[0].shape()[static_cast<size_t>(dim)];
  if (call.size() == 2) {
    std::vector<at::Tensor> all;
    for (int64_t index = 0; index < size; ++index) {
      all.push_back(selected(local, self, dim, index));
    }
    return call.finish(all);
  }
  const int64_t index = call.argument(2).toInt();
  call.finish(selected(local, self, dim, index < 0 ? index + size : index));
}

void local_split(const LocalKernelCall& local) {
  const OpCall& call = local.call;
  const Layout& layout = local.operands[0];
  const at::Tensor self = call.argument(0).toTensor();
  const int64_t dim = wrap_dim(call.argument(2).toInt(), self.dim());
  const int64_t size = layout.shape()[static_cast<size_t>(dim)];
  const int64_t piece = call.argument(1).toInt();
  std::vector<int64_t> lengths(
      static_cast<size_t>((size + piece - 1) / piece), 0);
  for (const Run& run : layout.runs(dim, local.coordinate)) {
    for (int64_t begin = run.begin; begin < run.end;) {
      const int64_t end = std::min(run.end, (begin / piece + 1) * piece);
      lengths[static_cast<size_t>(begin / piece)] += end - begin;
      begin = end;
    }
  }
  call.finish(at::split_with_sizes(self, lengths, dim));
}

namespace {

at::Tensor indices_of(const Runs& runs, const at::Device& device) {
  const at::Tensor indices = at::empty({total_length(runs)}, at::kLong);
  auto* next = indices.mutable_data_ptr<int64_t>();
  for (const Run& run : runs) {
    std::iota(next, next + run.length(), run.begin);
    next += run.length();
  }
  return indices.to(device);
}

// What lies on the wanted side of the diagonal of the global matrix.
at::Tensor triangle(
    const at::Tensor& self, const Runs& rows, const Runs& columns,
    int64_t diagonal, bool lower) {
  if (rows.size() <= 1 && columns.size() <= 1) {
    const int64_t moved = diagonal + (rows.empty() ? 0 : rows[0].begin) -
                          (columns.empty() ? 0 : columns[0].begin);
    return lower ? at::tril(self, moved) : at::triu(self, moved);
  }
  const at::Tensor offset = indices_of(columns, self.device()).unsqueeze(0) -
                            indices_of(rows, self.device()).unsqueeze(1);
  return self.masked_fill(lower ? offset.gt(diagonal) : offset.lt(diagonal), 0);
}

}  // namespace

void local_triangle(const LocalKernelCall& local) {
  const OpCall& call = local.call;
  const Layout& layout = local.operands[0];
  const at::Tensor self = call.argument(0).toTensor();
  const auto ndim = static_cast<int64_t>(layout.shape().size());
  const bool lower =
      call.op().operator_name().name.find("tril") != std::string::npos;
  const at::Tensor result = triangle(
      self, layout.runs(ndim - 2, local.coordinate),
      layout.runs(ndim - 1, local.coordinate), call.argument(1).toInt(), lower);
  if (!call.writes(0)) {
    return finish_local(call, result);
  }
  self.copy_(result);
  call.finish(self);
}

}  // namespace tessera::detail::inline tensor_layer
