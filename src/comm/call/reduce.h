// Reductions over tensors of several ranks, in host memory.
#pragma once

#include <cstdint>
#include <vector>

#include <c10/core/ScalarType.h>
#include <tessera/layout/placement.h>

namespace tessera::detail::inline comm_layer {

/// Combines inputs[0], inputs[1], ... element by element, in that order, and
/// writes the result to every output. Half, bfloat16 and float8 accumulate in
/// float and round once. An output may be one of the inputs.
void reduce_on_host(
    const std::vector<const void*>& inputs, const std::vector<void*>& outputs,
    int64_t numel, c10::ScalarType dtype, ReduceOp op);

/// Returns the dtype in which another one accumulates: f32 for f16, bf16 and
/// float8, else itself or its complex like.
c10::ScalarType accumulate_dtype(c10::ScalarType dtype);

/// Tells whether dtype has a sum, product, maximum, ... at all.
bool has_arithmetic(c10::ScalarType dtype);

}  // namespace tessera::detail::inline comm_layer
