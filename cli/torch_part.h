// The part of the command that needs LibTorch, as a library of its own that is
// loaded on demand: loading LibTorch takes 0.2 s, which show and run do not
// pay, and a LibTorch that cannot be loaded is something doctor can report.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tessera::cli {

/// One finding of doctor.
struct Check {
  enum class Status : uint8_t { kOk, kWarn, kFail };
  std::string name;
  Status status = Status::kOk;
  std::string found;
  std::string advice;  // what to do; empty when ok
};

struct DemoOptions {
  int ranks = 4;
  int steps = 400;
  bool float32 = false;
};

/// A parameter of the demo's module, as text.
struct DemoParameter {
  std::string name;
  std::string shape;
  std::string placements;
  std::string local_shape;  // on rank 0
};

struct DemoResult {
  std::vector<double> plain_losses;
  std::vector<double> sharded_losses;
  double plain_seconds = 0;
  double sharded_seconds = 0;
  std::string mesh;
  std::vector<DemoParameter> parameters;
};

/// Called after each step; from one thread at a time.
using DemoProgress = std::function<void(bool sharded, int step, double loss)>;

/// What the library offers; exceptions pass through.
struct TorchPart {
  std::vector<Check> (*inspect)();
  DemoResult (*train)(const DemoOptions& options, const DemoProgress& progress);
};

/// Loads the library; throws std::runtime_error with the loader's words.
const TorchPart& load_torch_part();

/// The library's only symbol, of this type.
inline constexpr const char* kTorchPartSymbol = "tessera_cli_torch_part";
using TorchPartFunction = const TorchPart* (*)();

}  // namespace tessera::cli
