// Where in an image the maxima of windows lie, as max pools say it: row-major
// indices of the last dims, of the whole image or of the part that a rank's
// windows read.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera::detail::inline tensor_layer {

/// A part of a plane of some dims: it begins at `begin`, negative where it has
/// padding before the plane.
struct PlanePart {
  std::vector<int64_t> plane;
  std::vector<int64_t> begin;
  std::vector<int64_t> sizes;
};

/// Turns indices of a part into those of its plane. Where a window holds
/// nothing but the fill of the padding, kernels name its first element, which
/// may be padding: the first element of the window that exists is meant, which
/// lies a multiple of `dilation` further.
at::Tensor to_plane_indices(
    const at::Tensor& indices, const PlanePart& part,
    const std::vector<int64_t>& dilation);

/// Turns indices of a plane into those of a part that has them all.
at::Tensor to_part_indices(const at::Tensor& indices, const PlanePart& part);

}  // namespace tessera::detail::inline tensor_layer
