// How a rank shows its part of a view where the operator on the shard would
// show something else.
#pragma once

#include <vector>

#include <tensor/call/local_kernel.h>

namespace tessera::detail::inline tensor_layer {

/// squeeze, squeeze.dim: drops the dims of one index in the global tensor, not
/// those of which this rank happens to hold one.
void local_squeeze(const LocalKernelCall& local);
/// select: the rank that holds the index shows it, others show nothing.
void local_select(const LocalKernelCall& local);
/// unbind: the same of every index.
void local_unbind(const LocalKernelCall& local);
/// split: the part that this rank holds of every piece.
void local_split(const LocalKernelCall& local);
/// tril, triu: by the place of this rank's rows and columns.
void local_triangle(const LocalKernelCall& local);
/// trace: what this rank holds of the diagonal, added up.
void local_trace(const LocalKernelCall& local);

}  // namespace tessera::detail::inline tensor_layer
