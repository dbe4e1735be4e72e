// Whether two loss curves are one.
#pragma once

#include <vector>

namespace tessera::cli {

struct DemoVerdict {
  double difference = 0;  // the largest |a - b| / max(|a|, |b|) of a step
  double allowed = 0;
  bool equal() const { return difference <= allowed; }
};

/// Compares the curves step by step. Curves of different lengths, empty ones
/// and losses that are not finite count as infinitely different.
DemoVerdict compare_curves(
    const std::vector<double>& plain, const std::vector<double>& sharded,
    bool float32);

}  // namespace tessera::cli
