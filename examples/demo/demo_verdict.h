// Whether two loss curves are one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tessera::cli {

struct DemoVerdict {
  double difference = 0;  // the largest |a - b| / max(|a|, |b|) of a step
  double allowed = 0;
  bool equal() const { return difference <= allowed; }
};

/// How near two curves of one training are.
struct DemoAccuracy {
  double allowed = 0;  // the difference of a step that rounding explains
  /// The first steps, which are compared: of bf16 alone not all, since any two
  /// runs that round differently part in the end.
  size_t steps = SIZE_MAX;
};

/// Returns that of a run of "f64", "f32" or "bf16".
DemoAccuracy accuracy_of(const std::string& dtype);

/// Compares the curves step by step. Curves of different lengths, empty ones
/// and losses that are not finite count as infinitely different.
DemoVerdict compare_curves(
    const std::vector<double>& plain, const std::vector<double>& sharded,
    const DemoAccuracy& accuracy);

}  // namespace tessera::cli
