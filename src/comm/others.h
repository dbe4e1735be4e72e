// Collectives that leave out what a rank holds itself: it travels nowhere, so
// it needs no buffer either.
#pragma once

#include <vector>

#include <tessera/comm/communicator.h>

namespace tessera::detail::inline comm_layer {

/// Fills `output` with the inputs of all other ranks, in rank order. Counts as
/// in all_gather_v.
Work all_gather_others(
    const Communicator& group, const at::Tensor& output,
    const at::Tensor& input, const std::vector<int64_t>& counts);

/// Reduces runs: `input` has those of the other ranks, in rank order, and
/// `output` this rank's own before the call, the result after it. What the
/// others send to this rank arrives in `landing`, as much of each as the output
/// takes. Counts as in reduce_scatter_v.
Work reduce_scatter_others(
    const Communicator& group, const at::Tensor& output,
    const at::Tensor& input, const at::Tensor& landing,
    const std::vector<int64_t>& counts, ReduceOp op);

}  // namespace tessera::detail::inline comm_layer
