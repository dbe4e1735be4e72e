// Reductions over tensors of several ranks, on accelerators, with ATen kernels.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/call/call.h"

namespace tessera::detail::inline comm_layer {

/// Combines the elements begin .. begin+count-1 of every call's input in rank
/// order and writes them to every output from `output_begin` on. Same rounding
/// as reduce_on_host(). Work goes to this thread's current streams.
void reduce_on_device(
    const Calls& calls, int64_t begin, const std::vector<at::Tensor>& outputs,
    int64_t output_begin, int64_t count);

}  // namespace tessera::detail::inline comm_layer
