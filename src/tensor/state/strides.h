// Strides of dense tensors.
//
// Note [How shards lie in memory]
// A sharded tensor shows global strides, and each of its shards has strides of
// its own. The rule that ties them: a shard that is made here is dense, and its
// dims follow each other in memory in the order of the global strides, see
// shard_strides(). So what a tensor says of its memory format holds for its
// shards: those of a channels_last tensor are channels_last, whichever dim is
// cut, and kernels choose as for the unsharded tensor; and a view that the
// global strides permit is one that the shard permits, unless a sharded dim
// prevents it. distribute_tensor() and make_dtensor_() take the global strides
// from the value, from_local() from the order of dims of the local tensor, and
// a redistribution from its source. Two kinds of shards lie otherwise: views of
// a shard, whose strides follow from its own, and what from_local() was given,
// where that is not dense (sliced, expanded) or has other strides than .stride
// says. Views of the latter are taken of a copy where its memory does not
// permit them. Between ranks data travel row-major. So ranks that see one
// tensor in different formats, as from_local() lets them, still mean the same
// elements.
#pragma once

#include <cstdint>
#include <vector>

#include <c10/core/MemoryFormat.h>
#include <c10/util/ArrayRef.h>

namespace tessera::detail::inline tensor_layer {

/// Returns row-major strides: [2, 3] -> [3, 1]. A dim of size 0 counts as 1,
/// as in ATen.
std::vector<int64_t> contiguous_strides(c10::IntArrayRef shape);

/// Returns the dims of a tensor, outermost in memory first. Of dims with equal
/// strides those of one index are the inner ones: [1, 3] with strides [1, 1]
/// is a column, 1, 0.
std::vector<int64_t> memory_order(
    c10::IntArrayRef shape, c10::IntArrayRef strides);

/// Returns the strides of a dense tensor whose dims lie in memory in the order
/// of those of another one: [2, 3] like [4, 3] with strides [1, 4] -> [1, 2].
std::vector<int64_t> dense_strides(
    c10::IntArrayRef shape, c10::IntArrayRef like_shape,
    c10::IntArrayRef like_strides);

/// Returns the strides of a shard of shape `local` of a tensor; see Note [How
/// shards lie in memory].
std::vector<int64_t> shard_strides(
    c10::IntArrayRef local, c10::IntArrayRef shape, c10::IntArrayRef strides);

/// Returns the global strides of a tensor of which a shard has the given ones:
/// [6, 4] of a shard [3, 4] with strides [1, 3] -> [1, 6]. Contiguous where the
/// shard is not dense.
std::vector<int64_t> strides_of_unsharded(
    c10::IntArrayRef shape, c10::IntArrayRef local,
    c10::IntArrayRef local_strides);

/// Sizes and strides of a tensor.
struct StridedShape {
  c10::IntArrayRef shape;
  c10::IntArrayRef strides;
};

/// Returns the strides that an elementwise kernel gives its result of a shape
/// that all operands broadcast to: of two dims the first operand that has both
/// says which is the outer one.
std::vector<int64_t> elementwise_strides(
    c10::IntArrayRef shape, const std::vector<StridedShape>& operands);

/// Tells whether the elements fill their memory once, in any dim order.
bool is_dense(c10::IntArrayRef shape, c10::IntArrayRef strides);

/// Tells whether every element surely has memory of its own: each dim steps
/// over all that the dims with smaller strides reach. [2, 3] with strides
/// [4, 1]: yes; with [1, 1]: no.
bool is_non_overlapping(c10::IntArrayRef shape, c10::IntArrayRef strides);

/// Returns the strides of a dense copy in a memory format; `like` are those of
/// the source, of which kPreserve keeps the order of dims.
std::vector<int64_t> strides_in_format(
    c10::IntArrayRef shape, c10::IntArrayRef like, c10::MemoryFormat format);

}  // namespace tessera::detail::inline tensor_layer
