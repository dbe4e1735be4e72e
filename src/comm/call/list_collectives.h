// The data movement of a collective on lists of tensors; see TensorList.
#pragma once

#include <cstdint>
#include <utility>

#include "comm/call/call.h"

namespace tessera::detail::inline comm_layer {

/// Runs the share of group rank `chunk`, as run_chunk() does:
///   all_gather        fills rank `chunk`'s outputs
///   reduce_scatter    reduces rank `chunk`'s parts
///   all_reduce        reduces the `chunk`-th slice of all elements, for every
///                     rank
void run_list_chunk(const Calls& calls, int64_t chunk);

/// Returns begin and end of the slice of `numel` elements that the share of
/// one of `size` ranks of an all_reduce is. Slices start at multiples of 64, so
/// that two threads write no common cache line.
/// Example: slice_of(100, 2, 1) -> {64, 100}.
std::pair<int64_t, int64_t> slice_of(
    int64_t numel, int64_t size, int64_t chunk);

}  // namespace tessera::detail::inline comm_layer
