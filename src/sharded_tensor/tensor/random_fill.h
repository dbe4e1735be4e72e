// Random values of shards: those of one rank that makes the whole tensor.
#pragma once

#include <optional>

#include <ATen/core/Generator.h>
#include <tensor/random/fill/distribution.h>
#include <tessera/sharded_tensor/sharded_tensor.h>

namespace tessera::detail::inline sharded_tensor_layer {

/// Fills the local shards with values that depend on the global size and dtype,
/// the distribution and the rank's next draw only. Every rank must call it, a
/// rank without shards too. Throws for a dtype that is not floating point.
void fill_random(
    const char* call, const sharded_tensor::ShardedTensor& tensor,
    const Distribution& distribution,
    const std::optional<at::Generator>& generator = std::nullopt);

}  // namespace tessera::detail::inline sharded_tensor_layer
