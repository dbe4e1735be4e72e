// Distributions: how Philox words become values, on the host.
#pragma once

#include <cstdint>

#include <c10/core/ScalarType.h>
#include <tensor/random/fill/index_ranges.h>
#include <tensor/random/philox/philox.h>

namespace tessera::detail::inline tensor_layer {

/// A distribution whose value at an element needs one or two words.
///
///   kind          value                                     words
///   kUniform      from a to before b                        narrow; f64: wide
///   kInteger      from low, `range` of them (0: all 2^64)   wide
///   kBernoulli    1 with probability a                      narrow
///   kNormal       mean a, standard deviation b              narrow; f64: wide
///   kLogNormal    exp of kNormal                            as kNormal
///   kExponential  rate a                                    as kUniform
///   kCauchy       median a, scale b                         as kUniform
///   kGeometric    tries until a success of probability a    wide
///
/// Uniforms have as many bits as the dtype's mantissa (f32 24, f16 11, bf16 8,
/// f64 53) and so never round to 1; a value that would round to b becomes the
/// largest below it. Integers are the high half of range * (64-bit word): each
/// is too likely or too unlikely by at most one in 2^64 / range. Normals come
/// in pairs (Box-Muller) and are computed in f64; so are the others.
struct Distribution {
  enum class Kind : uint8_t {
    kUniform,
    kInteger,
    kBernoulli,
    kNormal,
    kLogNormal,
    kExponential,
    kCauchy,
    kGeometric
  };
  Kind kind = Kind::kUniform;
  double a = 0;
  double b = 1;
  int64_t low = 0;
  uint64_t range = 0;
};

/// Returns how many mantissa bits a uniform of a dtype gets.
int uniform_bits(at::ScalarType dtype);
/// Tells whether an element of a dtype reads two words.
bool reads_wide(const Distribution& distribution, at::ScalarType dtype);
/// Returns the largest value of a dtype below `bound`.
double largest_below(double bound, at::ScalarType dtype);
/// Returns the smallest 32-bit word that means no: ceil(p * 2^32).
uint64_t bernoulli_threshold(double p);
/// Returns the exclusive upper bound of an integer distribution.
double upper_bound(const Distribution& distribution);

/// Writes the values of a range at `out`, which points to the range's first
/// element.
void fill_range(
    void* out, at::ScalarType dtype, const IndexRange& range,
    const Distribution& distribution, PhiloxKey key, uint32_t part);

}  // namespace tessera::detail::inline tensor_layer
