// Strided copies between tensors: what a rank takes out of a shard, or puts
// into one.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>
#include <plan/transfer/strided_copies.h>

namespace tessera::detail::inline comm_layer {

/// Copies from `from` to `to`, contiguous tensors of one dtype and
/// device, both shifted by an offset in elements.
void run_copies(
    const StridedCopies& copies, const at::Tensor& from, int64_t from_offset,
    const at::Tensor& to, int64_t to_offset);

}  // namespace tessera::detail::inline comm_layer
