// Operators that fill a tensor with values of one distribution whose parameters
// are numbers.
#include <cmath>
#include <limits>
#include <optional>

#include <tensor/random/ops/random_call.h>
#include <tensor/random/ops/table.h>

namespace tessera::detail::inline tensor_layer {

namespace {

using Kind = Distribution::Kind;

// The integers that a dtype holds exactly with all between them.
struct Bounds {
  int64_t lowest;
  uint64_t highest;
};

template <class... T>
std::optional<Bounds> bounds_of_integer(at::ScalarType dtype) {
  std::optional<Bounds> bounds;
  const auto look = [&]<class Type>(const Type*) {
    if (c10::CppTypeToScalarType<Type>::value == dtype) {
      bounds = {
          static_cast<int64_t>(std::numeric_limits<Type>::min()),
          static_cast<uint64_t>(std::numeric_limits<Type>::max())};
    }
  };
  (look(static_cast<const T*>(nullptr)), ...);
  return bounds;
}

Bounds bounds_of(at::ScalarType dtype) {
  const int64_t most = int64_t{1} << uniform_bits(dtype);
  return bounds_of_integer<
             bool, uint8_t, int8_t, int16_t, int32_t, int64_t, uint16_t,
             uint32_t, uint64_t>(dtype)
      .value_or(Bounds{-most, static_cast<uint64_t>(most)});
}

// random_: up to the largest integer where no end is given.
Distribution integers(const RandomCall& call, at::ScalarType dtype) {
  const Bounds bounds = bounds_of(dtype);
  const std::optional<int64_t> from =
      call.integer(call.find("low") != nullptr ? "low" : "from");
  const std::optional<int64_t> to =
      call.integer(call.find("high") != nullptr ? "high" : "to");
  Distribution d{.kind = Kind::kInteger, .low = from.value_or(0)};
  if (!to) {
    d.range = bounds.highest - static_cast<uint64_t>(d.low) + 1;
    return d;
  }
  call.check(
      d.low < *to, "the range must not be empty; got [", d.low, ", ", *to, ")");
  const bool integral = c10::isIntegralType(dtype, /*includeBool=*/true);
  call.check(
      !integral ||
          (d.low >= bounds.lowest &&
           (*to <= 0 || static_cast<uint64_t>(*to) - 1 <= bounds.highest)),
      "the range must fit the dtype ", dtype_name(dtype), "; got [", d.low,
      ", ", *to, ")");
  d.range = static_cast<uint64_t>(*to) - static_cast<uint64_t>(d.low);
  return d;
}

void check_floating(
    const RandomCall& call, at::ScalarType dtype, bool allow_integers) {
  const bool fits =
      c10::isFloatingType(dtype) ||
      (call.base_name().starts_with("rand") && c10::isComplexType(dtype)) ||
      ((call.base_name().starts_with("normal") ||
        call.base_name() == "uniform") &&
       c10::isComplexType(dtype));
  call.check(
      fits || (allow_integers && c10::isIntegralType(dtype, false)),
      "the dtype must be floating point; got ", dtype_name(dtype));
}

Distribution uniform(const RandomCall& call) {
  const double from = call.number("from", 0);
  const double to = call.number("to", 1);
  call.check(
      from <= to && std::isfinite(to - from),
      "the range must be finite and go upwards; got [", from, ", ", to, ")");
  return {.kind = Kind::kUniform, .a = from, .b = to};
}

Distribution normal(const RandomCall& call, Kind kind) {
  const bool logarithmic = kind == Kind::kLogNormal;
  const double mean = call.number("mean", logarithmic ? 1 : 0);
  const double std = call.number("std", logarithmic ? 2 : 1);
  call.check(
      logarithmic ? std > 0 : std >= 0,
      "the standard deviation must not be negative; got ", std);
  return {.kind = kind, .a = mean, .b = std};
}

Distribution bernoulli(const RandomCall& call) {
  const double p = call.number("p", 0.5);
  call.check(p >= 0 && p <= 1, "p must be from 0 to 1; got ", p);
  return {.kind = Kind::kBernoulli, .a = p};
}

Distribution exponential(const RandomCall& call) {
  const double rate = call.number("lambd", 1);
  call.check(rate > 0, "the rate must be positive; got ", rate);
  return {.kind = Kind::kExponential, .a = rate};
}

Distribution geometric(const RandomCall& call) {
  const double p = call.number("p", 0.5);
  call.check(p > 0 && p < 1, "p must be between 0 and 1; got ", p);
  return {.kind = Kind::kGeometric, .a = p};
}

Distribution cauchy(const RandomCall& call) {
  const double scale = call.number("sigma", 1);
  call.check(scale > 0, "sigma must be positive; got ", scale);
  return {.kind = Kind::kCauchy, .a = call.number("median", 0), .b = scale};
}

Distribution distribution_of(const RandomCall& call, at::ScalarType dtype) {
  const std::string_view name = call.base_name();
  if (name == "random" || name.starts_with("randint")) {
    return integers(call, dtype);
  }
  if (name == "bernoulli") {
    return bernoulli(call);
  }
  check_floating(call, dtype, name == "geometric");
  if (name == "uniform" || name == "rand" || name == "rand_like") {
    return uniform(call);
  }
  if (name == "exponential") {
    return exponential(call);
  }
  if (name == "geometric") {
    return geometric(call);
  }
  if (name == "cauchy") {
    return cauchy(call);
  }
  return normal(call, name == "log_normal" ? Kind::kLogNormal : Kind::kNormal);
}

}  // namespace

void fill_kernel(const OpCall& call) {
  const RandomCall random(call);
  const at::Tensor target = random.target();
  const Distribution distribution =
      distribution_of(random, target.scalar_type());
  fill_tensor(target, distribution, random.key());
  call.finish(target);
}

}  // namespace tessera::detail::inline tensor_layer
