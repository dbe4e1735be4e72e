// What `tessera bench checkpoint` measures, and how it is printed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tessera::cli {

/// kCheckpointTensors matrices of f32 with 1024 columns, `mebibytes` in all,
/// cut by rows. Element i of all of tensor t is (7919 i + t) mod 16777213.
struct CheckpointBenchOptions {
  int ranks = 4;
  int64_t mebibytes = 1024;
  bool raw_first = true;  // in this round
  std::string folder;     // where files go, and do not stay
};

inline constexpr int64_t kCheckpointTensors = 16;

/// One collective call: seconds of the slowest rank, and of CPU on all ranks.
struct CheckpointTime {
  double seconds = 0;
  double cpu_seconds = 0;
};

/// "save", "load", "raw save", "raw load", "async" (the call alone), "copy" (of
/// the rank's bytes) -> what it took.
using CheckpointTimes = std::map<std::string, CheckpointTime>;

/// What one round gave; the values that were loaded are those that were saved.
struct CheckpointRound {
  double sum = 0;  // of all elements
  CheckpointTimes times;
};

/// Measures as the ranks that this process hosts; what was measured where rank
/// 0 is among them, else nothing. Throws std::runtime_error where values that
/// were loaded differ from those that were saved.
std::optional<CheckpointRound> bench_checkpoint(
    const CheckpointBenchOptions& options);

struct CheckpointSettings {
  CheckpointBenchOptions bench;
  int rounds = 7;
  std::vector<std::string> engines{"threads", "gloo"};
  std::string python;
  std::string worker;  // the file for what a worker measured
  bool json = false;
};

/// One thing over all rounds.
struct CheckpointSeries {
  std::vector<double> seconds = {};
  std::vector<double> cpu_seconds = {};

  void add(const CheckpointTime& time);
};

/// One side over all rounds, by what was done.
using CheckpointSide = std::map<std::string, CheckpointSeries>;

struct CheckpointResult {
  std::string pytorch;                        // version, or why there is none
  std::map<std::string, std::string> absent;  // engine -> why
  std::vector<std::pair<std::string, CheckpointSide>> engines;
  CheckpointSide pytorch_side;  // empty without PyTorch
};

void print_checkpoint_table(
    const CheckpointSettings& settings, const CheckpointResult& result);
void print_checkpoint_json(
    const CheckpointSettings& settings, const CheckpointResult& result);

}  // namespace tessera::cli
