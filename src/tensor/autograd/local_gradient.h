// What the gradient of a shard is a shard of: to_local() and from_local().
//
// Note [Gradients of partial values]
// A shard or a copy has the gradient of the elements it holds. A partial value
// a_r of a Partial tensor x over n ranks has, with g the gradient of x:
//   sum           g, on every rank: Replicate
//   avg           g / n, on every rank: Replicate, scaled
//   max, min      g where a_r is the extreme, else 0: depends on the others
//   product       g times the other partial values
// The last three have no default: the caller says what they are.
#pragma once

#include <optional>

#include <tessera/tensor/dtensor_spec.h>

namespace tessera::detail::inline tensor_layer {

struct LocalGradient {
  Placements placements;
  /// The tensor's gradient over that of one partial value.
  double scale = 1;
  /// False where Note [Gradients of partial values] has no default.
  bool known = true;
};

/// Returns what the caller gave, checked against the spec, or the default.
LocalGradient local_gradient(
    const char* call, const DTensorSpec& spec,
    const std::optional<Placements>& given);

/// Throws where the gradient has no default.
void check_known(
    const char* call, const LocalGradient& gradient, const DTensorSpec& spec);

}  // namespace tessera::detail::inline tensor_layer
