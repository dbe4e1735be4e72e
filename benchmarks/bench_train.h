// What `tessera bench train` measured, and how it is printed.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench_workers.h"

namespace tessera::cli {

struct TrainSettings {
  TrainBenchOptions bench;
  int rounds = 5;
  std::vector<int> ranks{2, 4};
  std::vector<std::string> engines{"threads", "gloo", "mpi"};
  std::string python;
  std::string worker;  // the file for what a worker measured
  bool json = false;
};

/// One engine on one mesh over all rounds.
struct TrainRow {
  std::string engine;
  std::vector<double> step_seconds = {};
  double difference = 0;  // the largest of its losses from PyTorch's, relative
};

/// One mesh over all rounds.
struct TrainMesh {
  TrainBenchOptions bench;
  std::vector<double> pytorch_losses = {};  // none without PyTorch
  std::vector<double> pytorch_step_seconds = {};
  std::vector<TrainRow> rows = {};

  std::string name() const;
  double tokens_per_second(const std::vector<double>& step_seconds) const;
  /// Returns how many times more tokens per second than PyTorch; nothing
  /// without PyTorch.
  std::optional<double> ratio(const TrainRow& row) const;
};

struct TrainResult {
  std::string pytorch;                        // version, or why there is none
  std::map<std::string, std::string> absent;  // engine -> why
  std::vector<TrainMesh> meshes;

  /// Tells whether both sides had the same losses.
  bool is_same_model() const;
};

void print_train_table(
    const TrainSettings& settings, const TrainResult& result);
void print_train_json(const TrainSettings& settings, const TrainResult& result);

}  // namespace tessera::cli
