#include "demo_verdict.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace tessera::cli {
namespace {

constexpr double kAllowedF64 = 1e-10;
constexpr double kAllowedF32 = 1e-4;

double difference_of(double a, double b) {
  if (!std::isfinite(a) || !std::isfinite(b)) {
    return INFINITY;
  }
  return a == b ? 0 : std::abs(a - b) / std::max(std::abs(a), std::abs(b));
}

}  // namespace

DemoVerdict compare_curves(
    const std::vector<double>& plain, const std::vector<double>& sharded,
    bool float32) {
  DemoVerdict verdict{.allowed = float32 ? kAllowedF32 : kAllowedF64};
  if (plain.size() != sharded.size() || plain.empty()) {
    verdict.difference = INFINITY;
    return verdict;
  }
  for (size_t i = 0; i < plain.size(); ++i) {
    verdict.difference =
        std::max(verdict.difference, difference_of(plain[i], sharded[i]));
  }
  return verdict;
}

}  // namespace tessera::cli
