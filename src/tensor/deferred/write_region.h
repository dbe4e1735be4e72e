// Recorded calls that write a slice of a tensor, on the shards of it.
#pragma once

#include <tensor/deferred/region.h>

namespace tessera::detail::inline tensor_layer {

/// Runs a call that writes a slice of a tensor and reads none of it, on a shard
/// that is the box `mine` of the tensor: the part of the slice that lies in the
/// shard is written, as plain tensors. Needs a Replaying.
/// Example: w[2:5] of w[8, 6] is filled; a shard w[4:8] has its row 0 filled.
void write_region(
    const RecordedCall& call, const SlicedRegion& slice,
    const at::Tensor& shard, const Box& mine);

}  // namespace tessera::detail::inline tensor_layer
