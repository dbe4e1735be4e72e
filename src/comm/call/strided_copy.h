// Strided copies between contiguous tensors, as data: what a rank takes out of
// a shard, or puts into one.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera::detail {

/// One strided copy, in elements; inner dims last, merged where both sides
/// allow it.
struct Piece {
  int64_t from = 0;
  int64_t to = 0;
  std::vector<int64_t> sizes = {};
  std::vector<int64_t> from_strides = {};
  std::vector<int64_t> to_strides = {};

  int64_t numel() const;
  /// Tells whether it is one run of elements on both sides.
  bool is_run() const;
  friend bool operator==(const Piece&, const Piece&) = default;
};
using Pieces = std::vector<Piece>;

int64_t total_numel(const Pieces& pieces);

/// Copies pieces from `from` to `to`, contiguous tensors of one dtype and
/// device, both shifted by an offset in elements.
void copy_pieces(
    const Pieces& pieces, const at::Tensor& from, int64_t from_offset,
    const at::Tensor& to, int64_t to_offset);

}  // namespace tessera::detail
