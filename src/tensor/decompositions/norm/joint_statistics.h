// Means and variances of what several ranks hold.
#pragma once

#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <tensor/decompositions/decomposed_call.h>

namespace tessera::detail::inline tensor_layer {

/// Returns the mean and the variance of a tensor of shape `of` over the dims of
/// `r`, which stay as 1, from those that each rank has of its shard `x` and
/// from how far these lie apart: one all_gather over all mesh dims. Sums of
/// squares would lose small variances beside large means. Undefined where
/// nothing is computed.
std::pair<at::Tensor, at::Tensor> joint_statistics(
    const DecomposedCall& decomposed, const std::vector<int64_t>& of,
    const Reduced& r, const at::Tensor& x);

}  // namespace tessera::detail::inline tensor_layer
