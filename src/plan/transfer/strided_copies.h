// Which elements travel between two shards, as strided copies.
//
// Both shards are contiguous local tensors, described by regions. What they
// share is, per tensor dim, a list of segments; evenly spaced ones become one
// dim of a strided copy, so a strided shard is one copy, not one per run.
//   held 0:4 and 8:12 (stored as 0..7), wanted 2:10 (stored as 0..7):
//   segments 2:4 -> 0:2 and 4:6 -> 6:8, hence one copy of 2 x 2 elements
#pragma once

#include <cstdint>
#include <vector>

#include "plan/transfer/region.h"

namespace tessera::detail::inline plan_layer {

/// One strided copy between contiguous buffers, in elements; inner dims last,
/// merged where both sides allow it.
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
/// Appends copies of buffers that begin `from` and `to` elements later.
void append_shifted(
    StridedCopies& copies, StridedCopies more, int64_t from, int64_t to);

/// Returns how what `wanted` shares with `held` goes from the one shard to the
/// other.
StridedCopies copies_between(const Region& held, const Region& wanted);
/// Returns how it goes from the shard of `held` into a buffer of its own, in
/// the storage order of `wanted`.
StridedCopies packing(const Region& held, const Region& wanted);
/// Returns how it goes from that buffer into the shard of `wanted`.
StridedCopies unpacking(const Region& held, const Region& wanted);

}  // namespace tessera::detail::inline plan_layer
