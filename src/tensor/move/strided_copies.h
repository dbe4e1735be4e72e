// Pieces: which elements travel between two shards, as strided copies.
//
// Both shards are contiguous local tensors, described by regions. What they
// share is, per tensor dim, a list of segments; evenly spaced ones become one
// dim of a strided copy, so a strided shard is one piece, not one per run.
//   held 0:4 and 8:12 (stored as 0..7), wanted 2:10 (stored as 0..7):
//   segments 2:4 -> 0:2 and 4:6 -> 6:8, hence one piece of 2 x 2 elements
#pragma once

#include <comm/call/strided_copy.h>
#include <tensor/move/region.h>

namespace tessera::detail::inline tensor_layer {

/// Returns how what `wanted` shares with `held` goes from the one shard to the
/// other.
StridedCopies copies_between(const Region& held, const Region& wanted);
/// Returns how it goes from the shard of `held` into a buffer of its own, in
/// the storage order of `wanted`.
StridedCopies packing(const Region& held, const Region& wanted);
/// Returns how it goes from that buffer into the shard of `wanted`.
StridedCopies unpacking(const Region& held, const Region& wanted);

}  // namespace tessera::detail::inline tensor_layer
