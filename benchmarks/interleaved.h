// One thing measured beside another, in turns, so that both see the same
// machine.
#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

namespace tessera::cli {

using BenchClock = std::chrono::steady_clock;

/// Returns the seconds that a call of `body` takes.
template <class F>
double seconds_of(const F& body) {
  const auto begin = BenchClock::now();
  body();
  return std::chrono::duration<double>(BenchClock::now() - begin).count();
}

/// Seconds of plain runs, and how much longer the sharded run beside each took.
struct Interleaved {
  std::vector<double> plain;
  std::vector<double> extra;

  /// Runs both once; which one comes first changes from pair to pair.
  template <class Plain, class Sharded>
  void add_pair(const Plain& run_plain, const Sharded& run_sharded) {
    const bool plain_first = plain.size() % 2 == 0;
    double seconds = plain_first ? seconds_of(run_plain) : 0;
    const double sharded = seconds_of(run_sharded);
    seconds = plain_first ? seconds : seconds_of(run_plain);
    plain.push_back(seconds);
    extra.push_back(sharded - seconds);
  }

  void append(const Interleaved& other) {
    plain.insert(plain.end(), other.plain.begin(), other.plain.end());
    extra.insert(extra.end(), other.extra.begin(), other.extra.end());
  }
};

/// Returns the middle of the values [begin, end); the upper one of two.
inline double middle(
    const std::vector<double>& values, size_t begin, size_t end) {
  std::vector<double> part(
      values.begin() + static_cast<std::ptrdiff_t>(begin),
      values.begin() + static_cast<std::ptrdiff_t>(end));
  std::sort(part.begin(), part.end());
  return part[part.size() / 2];
}
inline double middle(const std::vector<double>& values) {
  return middle(values, 0, values.size());
}

}  // namespace tessera::cli
