// What `tessera bench fsdp` measures, on our side and as PyTorch's.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tessera::cli {

/// The GPT of examples/gpt.h and how it is trained: cut over `ranks / copies`
/// ranks, in `micro_batches` parts of a batch per step.
struct FsdpCase {
  int ranks = 2;
  int copies = 1;
  bool bf16 = false;  // computation and gathers; sums are f32
  int micro_batches = 1;
  int keep = 0;  // between them: 0 shards, 1 whole gradients, 2 weights too
  int64_t batch = 8;
  int64_t vocabulary = 0;  // that of the demo's text
  int64_t length = 64;
  int64_t width = 256;
  int64_t layers = 4;
  int warm_up = 3;  // steps before the clock runs; their losses are compared
  int steps = 5;    // in a round

  int64_t heads() const { return width / 32; }
  int64_t hidden() const { return 4 * width; }
  double tokens() const { return static_cast<double>(batch * length); }
  std::string name() const;
};

/// What one side came to. Calls and bytes are those of a rank in one step;
/// memory is what a rank's process held above the sharded model.
struct FsdpFigures {
  std::vector<double> losses = {};
  int64_t calls = 0;
  int64_t bytes = 0;
  int64_t peak_bytes = 0;
  std::vector<double> step_seconds = {};  // of the slowest rank, per round
};

struct FsdpRow {
  std::string engine;
  FsdpFigures figures = {};
};

/// One case over all rounds.
struct FsdpResult {
  FsdpCase of;
  std::optional<FsdpFigures> pytorch = {};
  std::vector<FsdpRow> rows = {};

  /// Returns the largest relative difference of a loss from PyTorch's.
  double difference() const;
  /// Tells whether both sides trained one model.
  bool is_same_model() const;
};

struct FsdpSettings {
  std::vector<FsdpCase> cases;
  std::vector<std::string> engines{"threads", "gloo"};
  int rounds = 3;
  std::string python;
  std::string worker;  // the file for what a worker measured
  bool json = false;
};

struct FsdpReport {
  std::string pytorch;                        // version, or why there is none
  std::map<std::string, std::string> absent;  // engine -> why
  std::vector<FsdpResult> results;
};

/// Measures as the ranks that this process hosts; what was measured where rank
/// 0 is among them, else nothing.
std::optional<FsdpFigures> bench_fsdp(const FsdpCase& one);

void print_fsdp(const FsdpSettings& settings, const FsdpReport& report);

}  // namespace tessera::cli
