// PyTorch's side of `tessera bench train` and `bench step`.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

#include "benchmarks/bench_workers.h"
#include "benchmarks/python_peer.h"

namespace tessera::cli {

/// PyTorch's processes on one mesh; they sleep between rounds.
class TrainPeer {
 public:
  TrainPeer(const std::string& python, const TrainBenchOptions& bench);

  std::string version() const { return hello_["torch"]; }
  std::vector<double> losses() const { return hello_["losses"]; }
  /// Returns the seconds of a step.
  double round();

 private:
  PythonPeer peer_;
  nlohmann::ordered_json hello_;
};

}  // namespace tessera::cli
