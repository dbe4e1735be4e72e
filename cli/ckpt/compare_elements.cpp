#include "compare_elements.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Float8_e4m3fn.h>
#include <c10/util/Float8_e4m3fnuz.h>
#include <c10/util/Float8_e5m2.h>
#include <c10/util/Float8_e5m2fnuz.h>
#include <c10/util/Float8_e8m0fnu.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace tessera::cli {
namespace {

/// Two numbers of 4 bits: sign, two bits of exponent, one of mantissa.
struct Float4Pair {
  uint8_t bits;
};

/// A complex number of two halves.
struct ComplexHalf {
  c10::Half real;
  c10::Half imaginary;
};

double float4_value(int bits) {
  constexpr double kValues[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return (bits & 8) != 0 ? -kValues[bits & 7] : kValues[bits & 7];
}

void add_distance(
    ElementDifference& difference, double distance, bool a_nan, bool b_nan) {
  if (a_nan != b_nan) {
    ++difference.nan_on_one_side;
  } else if (!a_nan) {
    difference.largest = std::max(difference.largest, distance);
  }
}

template <typename T>
void add_pair(ElementDifference& difference, T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    const auto distance = a > b ? static_cast<uint64_t>(a) - uint64_t(b)
                                : static_cast<uint64_t>(b) - uint64_t(a);
    difference.largest_integer = std::max(difference.largest_integer, distance);
  } else {
    const auto x = static_cast<double>(a), y = static_cast<double>(b);
    add_distance(difference, std::abs(x - y), std::isnan(x), std::isnan(y));
  }
}

template <typename T>
void add_pair(
    ElementDifference& difference, std::complex<T> a, std::complex<T> b) {
  const auto is_nan = [](std::complex<T> z) {
    return std::isnan(z.real()) || std::isnan(z.imag());
  };
  // Infinities that are equal have no distance between them.
  const auto distance = [](T x, T y) {
    return x == y ? 0. : std::abs(static_cast<double>(x) - double(y));
  };
  add_distance(
      difference,
      std::hypot(distance(a.real(), b.real()), distance(a.imag(), b.imag())),
      is_nan(a), is_nan(b));
}

void add_pair(ElementDifference& difference, ComplexHalf a, ComplexHalf b) {
  add_pair(
      difference, std::complex<float>(a.real, a.imaginary),
      std::complex<float>(b.real, b.imaginary));
}

void add_pair(ElementDifference& difference, Float4Pair a, Float4Pair b) {
  for (const int shift : {0, 4}) {
    add_pair(
        difference, float4_value(a.bits >> shift & 15),
        float4_value(b.bits >> shift & 15));
  }
}

template <typename T>
void compare(
    const void* a, const void* b, size_t count, int64_t begin,
    ElementDifference& difference) {
  const auto* left = static_cast<const char*>(a);
  const auto* right = static_cast<const char*>(b);
  for (size_t i = 0; i < count; ++i) {
    const size_t at = i * sizeof(T);
    if (std::memcmp(left + at, right + at, sizeof(T)) == 0) {
      continue;
    }
    T x, y;
    std::memcpy(&x, left + at, sizeof(T));
    std::memcpy(&y, right + at, sizeof(T));
    if (difference.different++ == 0) {
      difference.first = begin + static_cast<int64_t>(i);
    }
    add_pair(difference, x, y);
  }
}

using Compare =
    void (*)(const void*, const void*, size_t, int64_t, ElementDifference&);

struct DtypeCompare {
  io::Dtype dtype;
  Compare compare;
  bool is_integer = false;
};

constexpr DtypeCompare kCompares[] = {
    {io::Dtype::kBool, &compare<uint8_t>, true},
    {io::Dtype::kUInt8, &compare<uint8_t>, true},
    {io::Dtype::kInt8, &compare<int8_t>, true},
    {io::Dtype::kUInt16, &compare<uint16_t>, true},
    {io::Dtype::kInt16, &compare<int16_t>, true},
    {io::Dtype::kUInt32, &compare<uint32_t>, true},
    {io::Dtype::kInt32, &compare<int32_t>, true},
    {io::Dtype::kUInt64, &compare<uint64_t>, true},
    {io::Dtype::kInt64, &compare<int64_t>, true},
    {io::Dtype::kFloat16, &compare<c10::Half>},
    {io::Dtype::kBFloat16, &compare<c10::BFloat16>},
    {io::Dtype::kFloat32, &compare<float>},
    {io::Dtype::kFloat64, &compare<double>},
    {io::Dtype::kComplex32, &compare<ComplexHalf>},
    {io::Dtype::kComplex64, &compare<std::complex<float>>},
    {io::Dtype::kComplex128, &compare<std::complex<double>>},
    {io::Dtype::kFloat8E4M3FN, &compare<c10::Float8_e4m3fn>},
    {io::Dtype::kFloat8E4M3FNUZ, &compare<c10::Float8_e4m3fnuz>},
    {io::Dtype::kFloat8E5M2, &compare<c10::Float8_e5m2>},
    {io::Dtype::kFloat8E5M2FNUZ, &compare<c10::Float8_e5m2fnuz>},
    {io::Dtype::kFloat8E8M0FNU, &compare<c10::Float8_e8m0fnu>},
    {io::Dtype::kFloat4E2M1FNX2, &compare<Float4Pair>},
};

const DtypeCompare& compare_of(io::Dtype dtype) {
  for (const DtypeCompare& row : kCompares) {
    if (row.dtype == dtype) {
      return row;
    }
  }
  throw std::logic_error(
      "no comparison of " + std::string(io::info_of(dtype).name));
}

}  // namespace

bool has_integer_difference(io::Dtype dtype) {
  return compare_of(dtype).is_integer;
}

void compare_elements(
    io::Dtype dtype, const void* a, const void* b, size_t count, int64_t begin,
    ElementDifference& difference) {
  // Most tensors are equal, and memcmp is as fast as memory.
  if (std::memcmp(a, b, count * size_t(io::element_bytes(dtype))) != 0) {
    compare_of(dtype).compare(a, b, count, begin, difference);
  }
}

}  // namespace tessera::cli
