// StrictMode: no communication but what the program asks for. Also the count of
// operators that ran on whole values for want of a sharding rule.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <tessera/export.h>

namespace tessera {

/// What a StrictMode forbids.
struct StrictOptions {
  /// Communication that no function asked for: arguments of operators that
  /// have to be moved, gradients that do not arrive in their leaf's placements.
  bool communication = true;
  /// Operators that run on whole values, since no rule serves their arguments.
  bool fallbacks = false;
  /// Operators that make whole what was cut, by whatever rule, and gradients
  /// of leaves that are made whole.
  bool gathers = false;
  /// Whether `communication` and `gathers` cover the gradients of leaves.
  bool leaf_gradients = true;
  /// Warns instead of throwing.
  bool warn = false;
};

/// While it lives, what it forbids is an error on this thread, before anything
/// moves and on all ranks of the mesh alike. redistribute(), full_tensor(),
/// to_local(), from_local(), distribute_tensor(), make_dtensor_() and their
/// gradients are asked for, never errors. Of several the innermost counts, so
/// one that forbids nothing makes a gap: StrictMode gap({.communication =
/// false}).
class TESSERA_API StrictMode {
 public:
  explicit StrictMode(const StrictOptions& options = {});
  ~StrictMode();
  StrictMode(const StrictMode&) = delete;
  StrictMode& operator=(const StrictMode&) = delete;

 private:
  std::shared_ptr<const void> outer_;
};

/// How often an operator ran on whole values instead of shards.
struct FallbackCount {
  std::string op;
  int64_t count = 0;
};

/// Returns the fallbacks that communicated since the process started, all of
/// its ranks together, the most frequent first. The first one of each operator
/// prints a warning.
TESSERA_API std::vector<FallbackCount> fallback_counts();

}  // namespace tessera
