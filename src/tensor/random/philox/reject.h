// Distributions by rejection: an element reads as many words as it takes, from
// blocks of its own.
#pragma once

#include <cstdint>

#include <tensor/random/philox/philox.h>

namespace tessera::detail::inline tensor_layer {

/// The words of one element; see Note [How an element finds its words].
class ElementWords {
 public:
  ElementWords(PhiloxKey key, uint32_t part, int64_t linear_index)
      : key_(key),
        part_(part),
        linear_index_(static_cast<uint64_t>(linear_index)) {}

  /// Returns the next uniform of (0, 1).
  double uniform();
  /// Returns the next standard normal.
  double normal();

 private:
  PhiloxKey key_;
  uint32_t part_;
  uint64_t linear_index_;
  uint32_t attempt_ = 0;
  uint32_t used_ = 4;
  PhiloxBlock block_ = {};
};

/// Returns a gamma variate of shape `alpha` and rate 1 (Marsaglia and Tsang).
double draw_gamma(double alpha, ElementWords& words);
/// Returns a Poisson variate: products of uniforms for small means, transformed
/// rejection (Hoermann's PTRS) for others.
double draw_poisson(double mean, ElementWords& words);
/// Returns the successes of `count` tries: waiting times where few are
/// expected, transformed rejection (Hoermann's BTRS) elsewhere.
double draw_binomial(double count, double p, ElementWords& words);

}  // namespace tessera::detail::inline tensor_layer
