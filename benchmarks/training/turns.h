// A benchmark of ranks on every engine, in turns with PyTorch's processes: each
// round starts each engine's ranks once, by `tessera run`, and asks PyTorch
// once. What a side says of a round is JSON, and means what the benchmark says.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <tessera/layout/placement.h>
#include <nlohmann/json.hpp>

namespace CLI {
class App;
}

namespace tessera::cli {

struct TurnOptions {
  int ranks = 2;
  int rounds = 5;
  std::vector<std::string> engines{"threads", "gloo", "mpi"};
  std::string python = {};
  std::string worker = {};  // the file for what a worker measured
  bool json = false;
};

/// Adds --ranks, --rounds, --engine, --python and --json.
void add_turn_options(CLI::App& command, TurnOptions& options);

/// What one side said of each round.
struct Side {
  std::string name;  // an engine, or "PyTorch"
  std::vector<nlohmann::ordered_json> rounds = {};

  std::vector<double> numbers(const std::string& key) const;
  double median_of(const std::string& key) const;
};

struct Turns {
  std::string pytorch;  // version, or why there is none
  std::map<std::string, std::string> absent = {};  // engine -> why
  std::vector<Side> engines = {};
  std::optional<Side> peer = {};

  /// Returns how many times more of `key` PyTorch took than an engine; nothing
  /// without PyTorch.
  std::optional<double> ratio(const Side& engine, const std::string& key) const;
};

/// PyTorch's side: a script of benchmarks/ that reads lines and answers each.
struct PeerScript {
  std::string text;
  std::vector<std::string> arguments;
  std::string path;
};

/// Returns two cells of a table, how much more PyTorch took by the clock and of
/// CPU; empty for PyTorch and without it.
std::vector<std::string> ratio_cells(const Turns& turns, const Side& side);

/// Measures in turns. `argv` are the words after `tessera` that a worker gets.
Turns take_turns(
    const TurnOptions& options, const std::vector<std::string>& argv,
    const PeerScript& script);

/// Runs `measure` as a rank, or several; the process of rank 0, whose answer is
/// not null, writes it to the worker's file.
int run_worker(
    const TurnOptions& options,
    const std::function<nlohmann::ordered_json()>& measure);

/// What a body took on ranks that ran it together.
struct RankSeconds {
  double clock = 0;  // of the slowest rank
  double cpu = 0;    // of all ranks
};

/// Runs a body as one of the ranks; all of them call it.
RankSeconds time_on_ranks(const std::function<void()>& body);
/// Returns a number over all ranks.
double over_ranks(double mine, ReduceOp op);

/// Returns what JSON says of all sides.
nlohmann::ordered_json json_of(const Turns& turns);
/// Returns a line for each engine that is not there.
std::string absence_text(const Turns& turns);

}  // namespace tessera::cli
