// Strided copies between contiguous tensors, as data: what a rank takes out of
// a shard, or puts into one.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera::detail::inline comm_layer {

/// One strided copy, in elements; inner dims last, merged where both sides
/// allow it.
struct StridedCopy {
  int64_t from = 0;
  int64_t to = 0;
  std::vector<int64_t> sizes = {};
  std::vector<int64_t> from_strides = {};
  std::vector<int64_t> to_strides = {};

  int64_t numel() const;
  /// Tells whether it is one run of elements on both sides.
  bool is_run() const;
  friend bool operator==(const StridedCopy&, const StridedCopy&) = default;
};
using StridedCopies = std::vector<StridedCopy>;

int64_t total_numel(const StridedCopies& copies);

/// Copies pieces from `from` to `to`, contiguous tensors of one dtype and
/// device, both shifted by an offset in elements.
void run_copies(
    const StridedCopies& copies, const at::Tensor& from, int64_t from_offset,
    const at::Tensor& to, int64_t to_offset);

}  // namespace tessera::detail::inline comm_layer
