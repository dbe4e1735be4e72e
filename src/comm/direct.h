// Moves between ranks that share an address space: no send and receive buffers,
// every element is copied once.
#pragma once

#include <memory>
#include <vector>

#include <comm/call/call.h>
#include <comm/call/strided_copy.h>
#include <tessera/comm/communicator.h>

namespace tessera::detail::inline comm_layer {

/// Tells whether the ranks of a group can read each other's tensors. Not with
/// TESSERA_PACK=1, which has them send buffers as ranks of different processes
/// must.
bool shares_memory(const Communicator& group);

/// All ranks' inputs together fill `output`, each as its pieces say; counts as
/// in all_gather_v. `reads`, one entry per rank, must outlive the work.
Work all_gather_direct(
    const Communicator& group, const at::Tensor& output,
    const at::Tensor& input, const std::vector<StridedCopies>& reads,
    const std::vector<int64_t>& counts);
/// Fills `output` from the inputs of all ranks, each as its pieces say; counts
/// as in all_to_all_v, without what stays on this rank.
Work all_to_all_direct(
    const Communicator& group, const at::Tensor& output,
    const at::Tensor& input, const std::vector<StridedCopies>& reads,
    const std::vector<int64_t>& received, const std::vector<int64_t>& sent);

/// A collective on lists of tensors, of ranks that share an address space; all
/// three forms are there. Counts as those of the same call on runs.
Work all_gather_list(
    const Communicator& group, std::shared_ptr<const TensorList> list,
    const std::vector<int64_t>& counts);
Work reduce_scatter_list(
    const Communicator& group, std::shared_ptr<const TensorList> list,
    const std::vector<int64_t>& counts, ReduceOp op);
Work all_reduce_list(
    const Communicator& group, std::shared_ptr<const TensorList> list,
    ReduceOp op);

}  // namespace tessera::detail::inline comm_layer
