// The data movement of a collective between ranks that share an address space,
// cut into independent parts: part r is the share of group rank r. Parts may
// run in any order, at the same time and on any thread that may touch the
// tensors of all ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/call/call.h"

namespace tessera::detail::inline comm_layer {

/// Copies `count` elements between contiguous tensors of one dtype.
void copy_run(
    const at::Tensor& dst, int64_t dst_begin, const at::Tensor& src,
    int64_t src_begin, int64_t count);

/// Runs the share of group rank `chunk`.
///   all_gather, all_to_all, broadcast, scatter   fills rank `chunk`'s output
///   gather                        copies rank `chunk`'s input to the root
///   reduce_scatter                reduces rank `chunk`'s run
///   all_reduce                    reduces the `chunk`-th slice, for every rank
///   send and receive              part 0 copies, part 1 does nothing
void run_chunk(const Calls& calls, int64_t chunk);

/// Returns the number of bytes that all parts together write.
int64_t bytes_written(const Calls& calls);

}  // namespace tessera::detail::inline comm_layer
