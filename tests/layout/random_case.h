// Random cases that print their seed and size when they fail, smallest first.
//
// for_random_cases runs `property(random, size)` for many seeds; a failure is
// tried again with the same seed and every smaller size, and the smallest size
// that fails is reported. Rerun one case with TESSERA_SEED=n.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <optional>
#include <random>
#include <string>

#include <gtest/gtest.h>

namespace tessera {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  /// Returns one of low .. high.
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(
                     engine_() % static_cast<uint64_t>(high - low + 1));
  }
  bool flip() { return between(0, 1) == 1; }

 private:
  std::mt19937_64 engine_;
};

/// Says what is wrong with a case, or nothing.
using Property =
    std::function<std::optional<std::string>(Random& random, int64_t size)>;

inline void for_random_cases(
    uint64_t cases, int64_t max_size, const Property& property) {
  const char* chosen = std::getenv("TESSERA_SEED");
  const uint64_t first = chosen ? std::strtoull(chosen, nullptr, 10) : 0;
  for (uint64_t seed = first; seed < (chosen ? first + 1 : cases); ++seed) {
    const auto run = [&](int64_t size) {
      Random random(seed);
      return property(random, size);
    };
    // Sizes take turns, so that small cases come first.
    const auto size = static_cast<int64_t>(seed) % max_size + 1;
    if (chosen == nullptr && !run(size)) {
      continue;
    }
    for (int64_t smaller = 0; smaller <= max_size; ++smaller) {
      if (const auto wrong = run(smaller)) {
        FAIL() << "TESSERA_SEED=" << seed << " size " << smaller << ": "
               << *wrong;
      }
    }
  }
}

}  // namespace tessera
