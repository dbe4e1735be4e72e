#include "demo_verdict.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace tessera::cli {
namespace {

double difference_of(double a, double b) {
  if (!std::isfinite(a) || !std::isfinite(b)) {
    return INFINITY;
  }
  return a == b ? 0 : std::abs(a - b) / std::max(std::abs(a), std::abs(b));
}

}  // namespace

DemoAccuracy accuracy_of(const std::string& dtype) {
  if (dtype == "bf16") {
    return {.allowed = 1.0 / 256, .steps = 100};
  }
  return {.allowed = dtype == "f64" ? 1e-10 : 1e-4};
}

DemoVerdict compare_curves(
    const std::vector<double>& plain, const std::vector<double>& sharded,
    const DemoAccuracy& accuracy) {
  DemoVerdict verdict{.allowed = accuracy.allowed};
  if (plain.size() != sharded.size() || plain.empty()) {
    verdict.difference = INFINITY;
    return verdict;
  }
  for (size_t i = 0; i < plain.size(); ++i) {
    const double part = difference_of(plain[i], sharded[i]);
    if (i < accuracy.steps || std::isinf(part)) {
      verdict.difference = std::max(verdict.difference, part);
    }
  }
  return verdict;
}

}  // namespace tessera::cli
