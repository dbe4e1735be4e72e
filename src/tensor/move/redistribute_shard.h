// Moves a shard's data from one set of placements to another on one mesh.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>
#include <tensor/move/arranged.h>
#include <tensor/state/replicated.h>
#include <tessera/tensor/dtensor_spec.h>

namespace tessera::detail::inline tensor_layer {

/// Returns this rank's shard in placements `target`, given the one in `source`,
/// by the cheapest plan, in the target's order of dims. May share memory with
/// `local` where nothing had to move.
at::Tensor redistribute_shard(
    const at::Tensor& local, const DTensorSpec& source,
    const Placements& target);

/// Returns this rank's shard of a whole value, in memory of its own; no
/// communication.
at::Tensor slice_shard(const at::Tensor& value, const DTensorSpec& target);

/// Turns a value that all ranks hold into this rank's partial value, along
/// every mesh dim on which `target` is Partial.
at::Tensor to_partial(const at::Tensor& value, const DTensorSpec& target);

/// Sends the value that coordinate `source` of every mesh dim holds to all
/// ranks, cut as `target` says. `tensor` has the global shape on every rank.
at::Tensor scatter_shard(
    const at::Tensor& tensor, const DTensorSpec& target, int64_t source);

/// Returns the strides of this rank's shard, which it must have; see Note [How
/// shards lie in memory], strides.h.
std::vector<int64_t> strides_of_shard(const DTensorSpec& spec);
}  // namespace tessera::detail::inline tensor_layer
