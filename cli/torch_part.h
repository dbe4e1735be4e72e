// The part of the command that needs LibTorch, as a library of its own that is
// loaded on demand: loading LibTorch takes 0.2 s, which show and run do not
// pay, and a LibTorch that cannot be loaded is something doctor can report.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/tensor/operators.h>

#include "demo.h"

namespace tessera::cli {

/// One finding of doctor.
struct Check {
  enum class Status : uint8_t { kOk, kWarn, kFail };
  std::string name;
  Status status = Status::kOk;
  std::string found;
  std::string advice;  // what to do; empty when ok
};

/// Where this process stands when it was started with ranks: as one of several
/// processes, or to make ranks as threads. Else rank 0 of 1.
struct LaunchedAs {
  int rank = 0;
  int ranks = 1;
  bool processes = false;
};

/// What the library offers; exceptions pass through.
struct TorchPart {
  std::vector<Check> (*inspect)();
  /// Adds 1, 2, ... over the processes of a job; throws where the sum is wrong.
  void (*add_ranks)();
  LaunchedAs (*launched_as)();
  /// On rank 0 of a job of processes, the result; on the others an empty one.
  DemoResult (*train)(const DemoOptions& options, const DemoProgress& progress);
  std::vector<OperatorInfo> (*list_operators)();
  /// The table of rules, a line per entry.
  std::vector<std::string> (*list_rules)();
};

/// Loads the library; throws std::runtime_error with the loader's words.
const TorchPart& load_torch_part();

/// The library's only symbol, of this type.
inline constexpr const char* kTorchPartSymbol = "tessera_cli_torch_part";
using TorchPartFunction = const TorchPart* (*)();

}  // namespace tessera::cli
