#include <tensor/random/fill/distribution.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include <c10/util/BFloat16.h>
#include <c10/util/Exception.h>
#include <c10/util/Half.h>
#include <tensor/random/fill/vector_loops.h>
#include <tensor/random/philox/philox_blocks.h>

namespace tessera::detail::inline tensor_layer {

namespace {

using Kind = Distribution::Kind;

constexpr int64_t kChunkBlocks = 256;
constexpr double kTwoTo32 = 4294967296.0;

template <class T>
T from_double(double value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value != 0;
  } else if constexpr (std::is_integral_v<T>) {
    const auto most = static_cast<double>(std::numeric_limits<T>::max());
    return value >= most ? std::numeric_limits<T>::max()
                         : static_cast<T>(value);
  } else if constexpr (sizeof(T) < sizeof(float)) {
    return T(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

// Uniforms of (0, 1), exact: 32 or 52 bits and a half.
double open_uniform(uint32_t word) {
  return (static_cast<double>(word) + 0.5) * 0x1p-32;
}
double open_uniform(uint32_t low, uint32_t high) {
  const uint64_t word = (uint64_t{high} << 32) | low;
  return (static_cast<double>(word >> 12) + 0.5) * 0x1p-52;
}

void open_uniforms_of(
    const uint32_t* words, int64_t blocks, bool wide, double* uniforms) {
  for (int64_t i = 0; !wide && i < 4 * blocks; ++i) {
    uniforms[i] = open_uniform(words[i]);
  }
  for (int64_t i = 0; wide && i < 2 * blocks; ++i) {
    uniforms[i] = open_uniform(words[2 * i], words[2 * i + 1]);
  }
}

uint64_t high_product(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>((static_cast<Wide>(a) * b) >> 64);
}

// The values of `blocks` blocks of words. `per_block` values each.
template <class T>
class Values {
 public:
  Values(const Distribution& distribution, at::ScalarType dtype)
      : d_(distribution),
        wide_(reads_wide(distribution, dtype)),
        bits_(uniform_bits(dtype)),
        limit_(limit(dtype)) {}

  int64_t per_block() const { return wide_ ? 2 : 4; }
  bool wide() const { return wide_; }

  void make(const uint32_t* words, int64_t blocks, T* out) const {
    const int64_t n = blocks * per_block();
    switch (d_.kind) {
      case Kind::kUniform:
        return uniforms(words, n, out);
      case Kind::kInteger:
        return integers(words, n, out);
      case Kind::kBernoulli:
        return bernoullis(words, n, out);
      case Kind::kNormal:
      case Kind::kLogNormal:
        return normals(words, blocks, out);
      case Kind::kExponential:
      case Kind::kCauchy:
      case Kind::kGeometric:
        return others(words, blocks, out);
    }
  }

 private:
  double limit(at::ScalarType dtype) const {
    if (d_.kind == Kind::kUniform) {
      return std::max(largest_below(d_.b, dtype), d_.a);
    }
    return d_.kind == Kind::kInteger && c10::isFloatingType(dtype)
               ? largest_below(upper_bound(d_), dtype)
               : 0;
  }

  void uniforms(const uint32_t* words, int64_t n, T* out) const {
    const double unit = std::ldexp(1.0, -bits_);
    const int drop = 32 - bits_;
    const double width = d_.b - d_.a;
    const T most = from_double<T>(limit_);
    if constexpr (std::is_same_v<T, float>) {
      return uniforms_of(words, n, {drop, unit, width, d_.a, most}, out);
    }
    for (int64_t i = 0; i < n; ++i) {
      double u;
      if constexpr (std::is_same_v<T, double>) {
        const uint64_t word = (uint64_t{words[2 * i + 1]} << 32) | words[2 * i];
        u = static_cast<double>(word >> 11) * unit;
      } else {
        u = static_cast<double>(words[i] >> drop) * unit;
      }
      const T value = from_double<T>(u * width + d_.a);
      out[i] = value > most ? most : value;
    }
  }

  void bernoullis(const uint32_t* words, int64_t n, T* out) const {
    const uint64_t threshold = bernoulli_threshold(d_.a);
    if (threshold > std::numeric_limits<uint32_t>::max()) {
      std::fill(out, out + n, T(1));
      return;
    }
    const auto no = static_cast<uint32_t>(threshold);
    const T one(1);
    const T zero(0);
    for (int64_t i = 0; i < n; ++i) {
      out[i] = words[i] < no ? one : zero;
    }
  }

  void integers(const uint32_t* words, int64_t n, T* out) const {
    for (int64_t i = 0; i < n; ++i) {
      const uint64_t word = (uint64_t{words[2 * i + 1]} << 32) | words[2 * i];
      const uint64_t offset =
          d_.range == 0 ? word : high_product(word, d_.range);
      const auto value =
          static_cast<int64_t>(static_cast<uint64_t>(d_.low) + offset);
      if constexpr (std::is_same_v<T, bool>) {
        out[i] = value != 0;
      } else if constexpr (std::is_integral_v<T>) {
        out[i] = static_cast<T>(value);
      } else {
        const T rounded = from_double<T>(static_cast<double>(value));
        const T most = from_double<T>(limit_);
        out[i] = rounded > most ? most : rounded;
      }
    }
  }

  void normals(const uint32_t* words, int64_t blocks, T* out) const {
    double z[4 * kChunkBlocks];
    if (wide_) {
      normals_of_wide(words, blocks, z);
    } else {
      normals_of_narrow(words, 2 * blocks, z);
    }
    const bool logarithmic = d_.kind == Kind::kLogNormal;
    const int64_t n = blocks * per_block();
    if constexpr (std::is_same_v<T, float>) {
      if (!logarithmic) {
        return scale_to_floats(z, n, d_.b, d_.a, out);
      }
    }
    for (int64_t i = 0; i < n; ++i) {
      const double value = z[i] * d_.b + d_.a;
      out[i] = from_double<T>(logarithmic ? std::exp(value) : value);
    }
  }

  void others(const uint32_t* words, int64_t blocks, T* out) const {
    constexpr double kPi = 3.14159265358979323846;
    double u[4 * kChunkBlocks];
    const int64_t n = blocks * per_block();
    open_uniforms_of(words, blocks, wide_, u);
    if (d_.kind == Kind::kCauchy) {
      for (int64_t i = 0; i < n; ++i) {
        out[i] = from_double<T>(d_.a + d_.b * std::tan(kPi * (u[i] - 0.5)));
      }
      return;
    }
    log_all(u, n);
    const double divisor =
        d_.kind == Kind::kExponential ? -d_.a : std::log1p(-d_.a);
    for (int64_t i = 0; i < n; ++i) {
      const double value = u[i] / divisor;
      out[i] = from_double<T>(
          d_.kind == Kind::kExponential ? value
                                        : std::max(std::ceil(value), 1.0));
    }
  }

  const Distribution& d_;
  bool wide_;
  int bits_;
  double limit_;
};

template <class T>
void fill_typed(
    T* out, at::ScalarType dtype, const IndexRange& range,
    const Distribution& distribution, PhiloxKey key, uint32_t part) {
  const Values<T> values(distribution, dtype);
  const int64_t per_block = values.per_block();
  const CounterTail tail{part, values.wide() ? kWide : kNarrow};
  uint32_t words[4 * kChunkBlocks];
  T ready[4 * kChunkBlocks];
  const int64_t end = range.begin + range.count;
  for (int64_t linear_index = range.begin; linear_index < end;) {
    const int64_t first = linear_index / per_block;
    const int64_t blocks = std::min(
        kChunkBlocks, (end - first * per_block + per_block - 1) / per_block);
    philox_blocks(key, tail, static_cast<uint64_t>(first), blocks, words);
    const int64_t stop = std::min(end, (first + blocks) * per_block);
    T* to = out + (linear_index - range.begin);
    if (linear_index == first * per_block &&
        stop == (first + blocks) * per_block) {
      values.make(words, blocks, to);
    } else {
      values.make(words, blocks, ready);
      std::copy(
          ready + (linear_index - first * per_block),
          ready + (stop - first * per_block), to);
    }
    linear_index = stop;
  }
}

// Fills where `dtype` is one of the types; tells whether it is.
template <class... T>
bool fill_if(
    void* out, at::ScalarType dtype, const IndexRange& range,
    const Distribution& distribution, PhiloxKey key, uint32_t part) {
  return (
      (c10::CppTypeToScalarType<T>::value == dtype &&
       (fill_typed(static_cast<T*>(out), dtype, range, distribution, key, part),
        true)) ||
      ...);
}

// The neighbour towards minus infinity, for a type with the given bits.
template <class T, class Bits>
T next_below(T value) {
  auto bits = std::bit_cast<Bits>(value);
  constexpr Bits kSign = Bits(Bits{1} << (8 * sizeof(Bits) - 1));
  if ((bits & ~kSign) == 0) {
    bits = kSign | Bits{1};
  } else {
    bits = (bits & kSign) != 0 ? Bits(bits + 1) : Bits(bits - 1);
  }
  return std::bit_cast<T>(bits);
}

template <class T, class Bits>
double largest_below_typed(double bound) {
  T value = from_double<T>(bound);
  if (static_cast<double>(value) >= bound) {
    value = next_below<T, Bits>(value);
  }
  return static_cast<double>(value);
}

}  // namespace

int uniform_bits(at::ScalarType dtype) {
  if (dtype == at::kHalf) {
    return 11;
  }
  return dtype == at::kDouble ? 53 : dtype == at::kBFloat16 ? 8 : 24;
}

bool reads_wide(const Distribution& distribution, at::ScalarType dtype) {
  switch (distribution.kind) {
    case Kind::kInteger:
    case Kind::kGeometric:
      return true;
    case Kind::kBernoulli:
      return false;
    case Kind::kUniform:
    case Kind::kNormal:
    case Kind::kLogNormal:
    case Kind::kExponential:
    case Kind::kCauchy:
      return dtype == at::kDouble;
  }
  return false;
}

double largest_below(double bound, at::ScalarType dtype) {
  if (dtype == at::kDouble) {
    return largest_below_typed<double, uint64_t>(bound);
  }
  if (dtype == at::kHalf) {
    return largest_below_typed<c10::Half, uint16_t>(bound);
  }
  return dtype == at::kBFloat16
             ? largest_below_typed<c10::BFloat16, uint16_t>(bound)
             : largest_below_typed<float, uint32_t>(bound);
}

uint64_t bernoulli_threshold(double p) {
  return static_cast<uint64_t>(std::ceil(p * kTwoTo32));
}

double upper_bound(const Distribution& distribution) {
  const double range = distribution.range == 0
                           ? 0x1p64
                           : static_cast<double>(distribution.range);
  return static_cast<double>(distribution.low) + range;
}

void fill_range(
    void* out, at::ScalarType dtype, const IndexRange& range,
    const Distribution& distribution, PhiloxKey key, uint32_t part) {
  const bool known = fill_if<
      float, double, c10::Half, c10::BFloat16, int64_t, int32_t, int16_t,
      int8_t, uint8_t, bool, uint16_t, uint32_t, uint64_t>(
      out, dtype, range, distribution, key, part);
  TORCH_CHECK_NOT_IMPLEMENTED(
      known, "random numbers: dtype ", c10::toString(dtype),
      " has none; draw in f32 and convert");
}

}  // namespace tessera::detail::inline tensor_layer
