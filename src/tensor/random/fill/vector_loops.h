// The loops of distributions that vector instructions make faster; the same
// bits with any width.
#pragma once

#include <cstdint>

#include <tensor/random/philox/vector_width.h>

namespace tessera::detail::inline tensor_layer {

/// Writes standard normals, a pair for each pair of words (Box-Muller).
void normals_of_narrow(
    const uint32_t* words, int64_t pairs, double* normals,
    VectorWidth width = widest_vectors());
/// The same, for each pair of 64-bit words.
void normals_of_wide(
    const uint32_t* words, int64_t pairs, double* normals,
    VectorWidth width = widest_vectors());

/// Replaces values of (0, 2) by their natural logarithms.
void log_all(double* values, int64_t n, VectorWidth width = widest_vectors());

/// Uniforms of f32: the upper bits of a word as a fraction, times `factor`,
/// plus `offset`, at most `most`.
struct FloatUniforms {
  int drop;     // bits of a word that are not used
  double unit;  // of the last bit that is
  double factor;
  double offset;
  float most;
};
void uniforms_of(
    const uint32_t* words, int64_t n, const FloatUniforms& uniforms, float* out,
    VectorWidth width = widest_vectors());

/// Writes values * factor + offset, rounded to f32.
void scale_to_floats(
    const double* values, int64_t n, double factor, double offset, float* out,
    VectorWidth width = widest_vectors());

}  // namespace tessera::detail::inline tensor_layer
