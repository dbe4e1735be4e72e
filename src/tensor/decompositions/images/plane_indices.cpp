#include <tensor/decompositions/images/plane_indices.h>

#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/ops/div.h>
#include <ATen/ops/remainder.h>
#include <ATen/ops/where.h>
#include <c10/util/Exception.h>

namespace tessera::detail::inline tensor_layer {

namespace {

bool covers_plane(const PlanePart& part) {
  return part.sizes == part.plane &&
         std::all_of(part.begin.begin(), part.begin.end(), [](int64_t begin) {
           return begin == 0;
         });
}

// Calls move(coordinate, dim) on the coordinate of each dim, from the last one,
// of indices of a plane `from`, and returns the indices of what it gives in a
// plane `to`.
template <class Move>
at::Tensor with_moved_coordinates(
    const at::Tensor& indices, const std::vector<int64_t>& from,
    const std::vector<int64_t>& to, const Move& move) {
  at::Tensor rest = indices;
  at::Tensor result;
  int64_t stride = 1;
  for (size_t d = from.size(); d-- > 0;) {
    at::Tensor coordinate = d == 0 ? rest : rest.remainder(from[d]);
    coordinate = move(coordinate, d) * stride;
    result = result.defined() ? result.add_(coordinate) : coordinate;
    rest = d == 0 ? rest : at::div(rest, from[d], "floor");
    stride *= to[d];
  }
  return result;
}

}  // namespace

at::Tensor to_plane_indices(
    const at::Tensor& indices, const PlanePart& part,
    const std::vector<int64_t>& dilation) {
  if (covers_plane(part)) {
    return indices;
  }
  return with_moved_coordinates(
      indices, part.sizes, part.plane, [&](const at::Tensor& t, size_t d) {
        const at::Tensor at = t + part.begin[d];
        return part.begin[d] >= 0
                   ? at
                   : at::where(at.lt(0), at.remainder(dilation[d]), at);
      });
}

at::Tensor to_part_indices(const at::Tensor& indices, const PlanePart& part) {
  if (covers_plane(part)) {
    return indices;
  }
  return with_moved_coordinates(
      indices, part.plane, part.sizes, [&](const at::Tensor& t, size_t d) {
        const at::Tensor at = t - part.begin[d];
        // Devices check nothing, as ATen's own kernels there.
        if (at.device().is_cpu() && at.numel() > 0) {
          const int64_t least = at.min().item<int64_t>();
          const int64_t most = at.max().item<int64_t>();
          TORCH_CHECK_INDEX(
              least >= 0 && most < part.sizes[d],
              "max pool, backward: indices must lie in the windows that they "
              "are the maxima of, here in ",
              part.begin[d], ":", part.begin[d] + part.sizes[d], " of dim ", d,
              " of the image; got ", (least < 0 ? least : most) + part.begin[d],
              "; pass those of the forward call");
        }
        return at;
      });
}

}  // namespace tessera::detail::inline tensor_layer
