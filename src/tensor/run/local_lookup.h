// Local kernels of lookups and convolutions; see local_kernel.h.
#pragma once

#include <tensor/call/local_kernel.h>

namespace tessera::detail::inline tensor_layer {

/// Looks up global indices in the part of a table that this rank holds, and
/// gives zeros for indices that others hold. Serves embedding, gather,
/// index_select and index with one index tensor, whatever runs the rank holds.
void local_lookup(const LocalKernelCall& local);

/// Adds up bags of rows, of those that this rank holds: partial values of the
/// sums, or of the means, of bags.
void local_bags(const LocalKernelCall& local);

/// Runs a convolution, or its backward form, on shards of channels: the groups
/// and biases are those of the shard.
void local_convolution(const LocalKernelCall& local);

}  // namespace tessera::detail::inline tensor_layer
