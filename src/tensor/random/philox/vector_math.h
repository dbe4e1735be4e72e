// Logarithm, sine and cosine by arithmetic alone: no branches, no tables, no
// calls, so that loops over them become vector code and give the same bits on
// every host. Errors are below 3 units in the last place.
#pragma once

#include <bit>
#include <cstdint>

namespace tessera::detail::inline tensor_layer {

#define TESSERA_INLINE __attribute__((always_inline)) inline

// Adding and subtracting it rounds a small double to the nearest integer.
constexpr double kRoundingShift = 6755399441055744.0;  // 1.5 * 2^52

/// Returns ln(x) for a normal x with 0 < x < 2.
TESSERA_INLINE double vector_log(double x) {
  // x = 2^k m with m from sqrt(1/2) to sqrt(2), and s = (m - 1) / (m + 1):
  // ln(m) = 2 s (1 + s^2 / 3 + s^4 / 5 + ...).
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  const uint64_t shifted = bits - 0x3fe6a09e667f3bcdULL + (1024ULL << 52);
  const uint64_t biased = shifted >> 52;  // k + 1024
  const double k = std::bit_cast<double>(biased | 0x4330000000000000ULL) -
                   (4503599627370496.0 + 1024.0);
  const double m =
      std::bit_cast<double>(bits - (biased << 52) + (1024ULL << 52));
  const double f = m - 1.0;
  const double s = f / (2.0 + f);
  const double z = s * s;
  double series = 1.0 / 23.0;
  series = series * z + 1.0 / 21.0;
  series = series * z + 1.0 / 19.0;
  series = series * z + 1.0 / 17.0;
  series = series * z + 1.0 / 15.0;
  series = series * z + 1.0 / 13.0;
  series = series * z + 1.0 / 11.0;
  series = series * z + 1.0 / 9.0;
  series = series * z + 1.0 / 7.0;
  series = series * z + 1.0 / 5.0;
  series = series * z + 1.0 / 3.0;
  const double tail = 2.0 * s * (z * series);
  constexpr double kLn2High = 0x1.62e42fefa38p-1;  // 45 bits: k * it is exact
  constexpr double kLn2Low = 0x1.ef35793c7673p-45;
  return k * kLn2High + (2.0 * s + (tail + k * kLn2Low));
}

struct SineCosine {
  double sine;
  double cosine;
};

/// Returns sine and cosine of 2 pi u for 0 <= u <= 1.
TESSERA_INLINE SineCosine vector_sincos_turns(double u) {
  const double x = 4.0 * u;
  const double quadrant = (x + kRoundingShift) - kRoundingShift;  // 0 .. 4
  const double t = (x - quadrant) * 1.5707963267948966;  // within pi / 4
  const double z = t * t;
  double sine = 1.0 / 355687428096000.0;  // 1 / 17!
  sine = sine * z - 1.0 / 1307674368000.0;
  sine = sine * z + 1.0 / 6227020800.0;
  sine = sine * z - 1.0 / 39916800.0;
  sine = sine * z + 1.0 / 362880.0;
  sine = sine * z - 1.0 / 5040.0;
  sine = sine * z + 1.0 / 120.0;
  sine = sine * z - 1.0 / 6.0;
  sine = t + t * (z * sine);
  double cosine = 1.0 / 20922789888000.0;  // 1 / 16!
  cosine = cosine * z - 1.0 / 87178291200.0;
  cosine = cosine * z + 1.0 / 479001600.0;
  cosine = cosine * z - 1.0 / 3628800.0;
  cosine = cosine * z + 1.0 / 40320.0;
  cosine = cosine * z - 1.0 / 720.0;
  cosine = cosine * z + 1.0 / 24.0;
  cosine = cosine * z - 0.5;
  cosine = 1.0 + z * cosine;
  // The quadrant swaps the two and sets their signs.
  const bool swap = quadrant == 1.0 || quadrant == 3.0;
  const double sine_sign = quadrant == 2.0 || quadrant == 3.0 ? -1.0 : 1.0;
  const double cosine_sign = quadrant == 1.0 || quadrant == 2.0 ? -1.0 : 1.0;
  return {
      sine_sign * (swap ? cosine : sine), cosine_sign * (swap ? sine : cosine)};
}

#undef TESSERA_INLINE

}  // namespace tessera::detail::inline tensor_layer
