#include <tensor/random/fill/vector_loops.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include <tensor/random/philox/vector_math.h>

namespace tessera::detail::inline tensor_layer {

namespace {

#define TESSERA_INLINE __attribute__((always_inline)) inline

constexpr int64_t kChunkPairs = 512;

// The same as a conversion, for which not all hosts have an instruction.
TESSERA_INLINE double to_double(uint32_t word) {
  constexpr double kTwoTo52 = 4503599627370496.0;
  return std::bit_cast<double>(uint64_t{word} | 0x4330000000000000ULL) -
         kTwoTo52;
}

// A pair of normals from (0, 1) and [0, 1), in place.
TESSERA_INLINE void box_muller(double* u1, double* u2, int64_t pairs) {
  for (int64_t i = 0; i < pairs; ++i) {
    const double r = std::sqrt(-2.0 * vector_log(u1[i]));
    const SineCosine turn = vector_sincos_turns(u2[i]);
    u1[i] = r * turn.cosine;
    u2[i] = r * turn.sine;
  }
}

TESSERA_INLINE void join_pairs(
    const double* first, const double* second, int64_t pairs, double* out) {
  for (int64_t i = 0; i < pairs; ++i) {
    out[2 * i] = first[i];
    out[2 * i + 1] = second[i];
  }
}

struct NarrowNormals {
  TESSERA_INLINE static void run(
      const uint32_t* words, int64_t pairs, double* normals) {
    double u1[kChunkPairs], u2[kChunkPairs];
    for (int64_t begin = 0; begin < pairs; begin += kChunkPairs) {
      const int64_t n = std::min(kChunkPairs, pairs - begin);
      const uint32_t* from = words + 2 * begin;
      for (int64_t i = 0; i < n; ++i) {
        u1[i] = (to_double(from[2 * i]) + 0.5) * 0x1p-32;
        u2[i] = to_double(from[2 * i + 1]) * 0x1p-32;
      }
      box_muller(u1, u2, n);
      join_pairs(u1, u2, n, normals + 2 * begin);
    }
  }
};

TESSERA_INLINE double wide_uniform(uint32_t low, uint32_t high) {
  const uint64_t word = (uint64_t{high} << 32) | low;
  return (static_cast<double>(word >> 12) + 0.5) * 0x1p-52;
}

struct WideNormals {
  TESSERA_INLINE static void run(
      const uint32_t* words, int64_t pairs, double* normals) {
    double u1[kChunkPairs], u2[kChunkPairs];
    for (int64_t begin = 0; begin < pairs; begin += kChunkPairs) {
      const int64_t n = std::min(kChunkPairs, pairs - begin);
      const uint32_t* from = words + 4 * begin;
      for (int64_t i = 0; i < n; ++i) {
        u1[i] = wide_uniform(from[4 * i], from[4 * i + 1]);
        u2[i] = wide_uniform(from[4 * i + 2], from[4 * i + 3]);
      }
      box_muller(u1, u2, n);
      join_pairs(u1, u2, n, normals + 2 * begin);
    }
  }
};

struct Logarithms {
  TESSERA_INLINE static void run(double* values, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      values[i] = vector_log(values[i]);
    }
  }
};

struct Uniforms {
  TESSERA_INLINE static void run(
      const uint32_t* words, int64_t n, FloatUniforms u, float* out) {
    for (int64_t i = 0; i < n; ++i) {
      // At most 24 bits: a signed conversion does.
      const auto bits = static_cast<int32_t>(words[i] >> u.drop);
      const auto value = static_cast<float>(
          static_cast<double>(bits) * u.unit * u.factor + u.offset);
      out[i] = value > u.most ? u.most : value;
    }
  }
};

struct ScaledFloats {
  TESSERA_INLINE static void run(
      const double* values, int64_t n, double factor, double offset,
      float* out) {
    for (int64_t i = 0; i < n; ++i) {
      out[i] = static_cast<float>(values[i] * factor + offset);
    }
  }
};

#undef TESSERA_INLINE

}  // namespace

void normals_of_narrow(
    const uint32_t* words, int64_t pairs, double* normals, VectorWidth width) {
  run_loop<NarrowNormals>(width, words, pairs, normals);
}

void normals_of_wide(
    const uint32_t* words, int64_t pairs, double* normals, VectorWidth width) {
  run_loop<WideNormals>(width, words, pairs, normals);
}

void log_all(double* values, int64_t n, VectorWidth width) {
  run_loop<Logarithms>(width, values, n);
}

void uniforms_of(
    const uint32_t* words, int64_t n, const FloatUniforms& uniforms, float* out,
    VectorWidth width) {
  run_loop<Uniforms>(width, words, n, uniforms, out);
}

void scale_to_floats(
    const double* values, int64_t n, double factor, double offset, float* out,
    VectorWidth width) {
  run_loop<ScaledFloats>(width, values, n, factor, offset, out);
}

}  // namespace tessera::detail::inline tensor_layer
