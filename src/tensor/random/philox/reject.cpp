#include <tensor/random/philox/reject.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include <tensor/random/philox/vector_math.h>

namespace tessera::detail::inline tensor_layer {

namespace {

constexpr double kFew = 10;  // where the transformed methods begin

// ln of the gamma function for x > 0; unlike std::lgamma it writes no global.
double log_gamma(double x) {
  double product = 1;
  while (x < 12) {
    product *= x;
    x += 1;
  }
  const double r = 1 / (x * x);
  const double series =
      (1.0 / 12 - r * (1.0 / 360 - r * (1.0 / 1260 -
                                        r * (1.0 / 1680 - r * (1.0 / 1188))))) /
      x;
  constexpr double kHalfLnTwoPi = 0.91893853320467274178;
  return (x - 0.5) * std::log(x) - x + kHalfLnTwoPi + series -
         std::log(product);
}

double poisson_by_products(double mean, ElementWords& words) {
  const double limit = std::exp(-mean);
  double product = words.uniform();
  double count = 0;
  while (product > limit) {
    product *= words.uniform();
    count += 1;
  }
  return count;
}

double poisson_transformed(double mean, ElementWords& words) {
  const double b = 0.931 + 2.53 * std::sqrt(mean);
  const double a = -0.059 + 0.02483 * b;
  const double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4);
  const double v_r = 0.9277 - 3.6224 / (b - 2);
  while (true) {
    const double u = words.uniform() - 0.5;
    const double v = words.uniform();
    const double us = 0.5 - std::abs(u);
    const double k = std::floor((2 * a / us + b) * u + mean + 0.43);
    if (us >= 0.07 && v <= v_r) {
      return k;
    }
    if (k < 0 || (us < 0.013 && v > us)) {
      continue;
    }
    if (std::log(v * inverse_alpha / (a / (us * us) + b)) <=
        k * std::log(mean) - mean - log_gamma(k + 1)) {
      return k;
    }
  }
}

double binomial_by_waiting(double count, double p, ElementWords& words) {
  const double log_q = std::log1p(-p);
  double tries = 0;
  double successes = 0;
  while (true) {
    tries += std::max(std::ceil(std::log(words.uniform()) / log_q), 1.0);
    if (tries > count) {
      return successes;
    }
    successes += 1;
  }
}

double binomial_transformed(double count, double p, ElementWords& words) {
  const double q = 1 - p;
  const double spread = std::sqrt(count * p * q);
  const double b = 1.15 + 2.53 * spread;
  const double a = -0.0873 + 0.0248 * b + 0.01 * p;
  const double c = count * p + 0.5;
  const double v_r = 0.92 - 4.2 / b;
  const double alpha = (2.83 + 5.1 / b) * spread;
  const double mode = std::floor((count + 1) * p);
  while (true) {
    const double u = words.uniform() - 0.5;
    double v = words.uniform();
    const double us = 0.5 - std::abs(u);
    const double k = std::floor((2 * a / us + b) * u + c);
    if (us >= 0.07 && v <= v_r) {
      return k;
    }
    if (k < 0 || k > count) {
      continue;
    }
    v = std::log(v * alpha / (a / (us * us) + b));
    const double bound = log_gamma(mode + 1) + log_gamma(count - mode + 1) -
                         log_gamma(k + 1) - log_gamma(count - k + 1) +
                         (k - mode) * std::log(p / q);
    if (v <= bound) {
      return k;
    }
  }
}

}  // namespace

double ElementWords::uniform() {
  if (used_ == 4) {
    block_ = philox_block(linear_index_, {part_, kFullBlock + attempt_}, key_);
    ++attempt_;
    used_ = 0;
  }
  const uint64_t word = (uint64_t{block_[used_ + 1]} << 32) | block_[used_];
  used_ += 2;
  return (static_cast<double>(word >> 12) + 0.5) * 0x1p-52;
}

double ElementWords::normal() {
  const double radius = std::sqrt(-2 * vector_log(uniform()));
  return radius * vector_sincos_turns(uniform()).cosine;
}

double draw_gamma(double alpha, ElementWords& words) {
  if (!(alpha > 0)) {
    return alpha == 0 ? 0 : std::numeric_limits<double>::quiet_NaN();
  }
  if (std::isinf(alpha)) {
    return alpha;  // no draw would be accepted
  }
  // A variate of shape alpha + 1 times u^(1 / alpha) has shape alpha.
  const double scale = alpha < 1 ? std::pow(words.uniform(), 1 / alpha) : 1;
  const double d = (alpha < 1 ? alpha + 1 : alpha) - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = words.normal();
    const double y = 1 + c * x;
    if (y <= 0) {
      continue;
    }
    const double v = y * y * y;
    if (std::log(words.uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) {
      return scale * d * v;
    }
  }
}

double draw_poisson(double mean, ElementWords& words) {
  if (!(mean > 0)) {
    return mean == 0 ? 0 : std::numeric_limits<double>::quiet_NaN();
  }
  return mean < kFew ? poisson_by_products(mean, words)
                     : poisson_transformed(mean, words);
}

double draw_binomial(double count, double p, ElementWords& words) {
  if (!(count >= 0 && p >= 0 && p <= 1)) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  count = std::floor(count);
  if (p > 0.5) {
    return count - draw_binomial(count, 1 - p, words);
  }
  if (count == 0 || p == 0) {
    return 0;
  }
  return count * p < kFew ? binomial_by_waiting(count, p, words)
                          : binomial_transformed(count, p, words);
}

}  // namespace tessera::detail::inline tensor_layer
