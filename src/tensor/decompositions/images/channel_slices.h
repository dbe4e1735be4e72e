// Output channels of a convolution that a rank computes at a time.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>
#include <tessera/layout/layout.h>

namespace tessera::detail::inline tensor_layer {

// Note [Slices of output channels]
// Kernels of CPUs lay a weight out anew for their instructions, and its
// gradient too. Where images are cut the weight is whole on each rank, and in
// the last layers of a network much larger than the images of a rank: the copy
// would be most of what the rank holds. So such a convolution is computed by
// slices of output channels, each as large as the images, or a MiB.
//   Weight [512, 512, 3, 3] of f32, images [2, 512, 5, 5]: 9 slices of 57
//   channels; the copy takes 1 MiB instead of 9.

/// Returns the slices for what a rank reads of the images; one where the
/// weight is no larger, has groups, or is not on the CPU.
std::vector<Run> channel_slices(
    const at::Tensor& images, const at::Tensor& weight, int64_t groups);

}  // namespace tessera::detail::inline tensor_layer
