// What `bench dispatch` and `bench dispatch --misses` share: how extras are
// compared, and PyTorch's side.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "python_peer.h"

namespace tessera::cli {

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
