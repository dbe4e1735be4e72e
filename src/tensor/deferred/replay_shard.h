// Running recorded calls on shards: a deferred tensor becomes a sharded one,
// and no rank holds it whole.
//
// Note [Replaying on shards]
// Calls that make each element of itself run on a rank's shard: fills, random
// numbers (which know an element by its global place), elementwise operators,
// copies and triangles; of a tensor of another shape they read the values
// whole. Where they write a slice of the tensor, the part of it that the rank
// holds is written. From the last call on that is none of these (a sum over
// elements, a factorisation), the calls are replayed on the whole tensor first,
// and its slice is kept. Either way nothing is communicated, and the values are
// those of a plain tensor, bit for bit.
#pragma once

#include <tensor/deferred/tape.h>
#include <tessera/tensor/dtensor_spec.h>

namespace tessera::detail::inline tensor_layer {

/// Returns this rank's shard of a deferred tensor.
at::Tensor replay_shard(const at::Tensor& tensor, const SpecPtr& spec);

}  // namespace tessera::detail::inline tensor_layer
