// What `bench dispatch` and `bench dispatch --misses` share: targets, and
// PyTorch's side.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "python_peer.h"

namespace tessera::cli {

/// A figure against its bound.
struct Target {
  std::string text;  // how it is missed: "add 0.90 us ..., above 0.50"
  bool met = false;
};

/// Returns the texts of the targets that are not met.
std::vector<std::string> missed(const std::vector<Target>& targets);
/// Prints what is missed, or that nothing is.
std::string targets_text(const std::vector<Target>& targets);

/// Returns the median over rounds of above[i] / below[i], where an extra below
/// the clock's resolution counts as that.
double extra_ratio(const std::vector<double>& above, std::vector<double> below);
/// Prints seconds as "1.25".
std::string microseconds(double seconds);

/// Starts benchmarks/dispatch_pytorch.py. Returns PyTorch's version, or, with
/// no peer, why there is none.
std::string start_dispatch_peer(
    std::optional<PythonPeer>& peer, const std::string& python,
    const std::vector<std::string>& arguments);

}  // namespace tessera::cli
