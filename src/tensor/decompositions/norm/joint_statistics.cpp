#include <tensor/decompositions/norm/joint_statistics.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/var_mean.h>
#include <ATen/ops/zeros.h>
#include <tensor/decompositions/group_coordinates.h>

namespace tessera::detail::inline tensor_layer {

namespace {

// How many elements of a tensor of a shape the ranks along `r.over` each
// average, with a dim for ranks before those of the values.
at::Tensor counts_of(
    const DecomposedCall& decomposed, const std::vector<int64_t>& of,
    const Reduced& r, const at::Tensor& values) {
  const Layout layout(of, decomposed.mesh().mesh_shape(), r.operand);
  std::vector<int64_t> counts;
  for (const std::vector<int64_t>& at :
       group_coordinates(layout.mesh(), r.over, decomposed.coordinate())) {
    const std::vector<int64_t> shape = layout.local_shape(at);
    counts.push_back(1);
    for (const int64_t d : r.dims) {
      counts.back() *= shape[static_cast<size_t>(d)];
    }
  }
  std::vector<int64_t> shape(static_cast<size_t>(values.dim()), 1);
  shape[0] = static_cast<int64_t>(counts.size());
  return at::tensor(counts, at::kLong).to(values.options()).view(shape);
}

}  // namespace

std::pair<at::Tensor, at::Tensor> joint_statistics(
    const DecomposedCall& decomposed, const std::vector<int64_t>& of,
    const Reduced& r, const at::Tensor& x) {
  std::vector<int64_t> shape = r.kept->shape();
  shape.insert(shape.begin(), 2);
  Placements placements = r.kept->placements();
  for (Placement& p : placements) {
    p = p.is_shard() ? p.with_dim(p.dim() + 1) : p;
  }
  const at::Tensor all = decomposed.gathered(
      DTensorSpec::make(decomposed.mesh(), placements, shape, r.kept->dtype()),
      r.over, "statistics", [&] {
        if (x.numel() == 0) {
          std::vector<int64_t> local = r.kept->local_shape();
          local.insert(local.begin(), 2);
          return at::zeros(local, x.options());
        }
        const auto [variance, mean] =
            at::var_mean(x, r.dims, /*correction=*/0, /*keepdim=*/true);
        return at::stack({mean, variance});
      });
  if (!decomposed.computes()) {
    return {};
  }
  const at::Tensor means = all.select(1, 0);
  const at::Tensor weights =
      counts_of(decomposed, of, r, means) / static_cast<double>(r.count);
  const at::Tensor mean = (means * weights).sum(0);
  return {
      mean, ((all.select(1, 1) + (means - mean).square_()) * weights).sum(0)};
}

}  // namespace tessera::detail::inline tensor_layer
