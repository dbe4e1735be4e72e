// tessera bench step: a training step of a GPT on a mesh of one rank beside the
// plain step, in CPU time; and PyTorch's DTensor. One thread each.
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <memory>
#include <optional>

#include "bench_train_peer.h"
#include "benchmarks/bench.h"
#include "benchmarks/bench_workers.h"
#include "benchmarks/python_peer.h"
#include "cli/command.h"
#include "cli/text/progress.h"
#include "cli/text/terminal.h"
#include "cli/text/text_table.h"

namespace tessera::cli {
namespace {

using nlohmann::ordered_json;

struct StepOptions {
  int rounds = 5;
  int steps = 20;  // of each side in a round
  std::string python;
  bool json = false;
};

/// One size, the most that its step may take beside the plain one, and what
/// was measured.
struct StepRow {
  int64_t width, batch, length;
  double most;
  std::vector<double> plain = {}, sharded = {}, pytorch = {};

  std::string name() const {
    return "width " + std::to_string(width) + ", batch " +
           std::to_string(batch) + " x " + std::to_string(length);
  }
  double ratio() const { return median_ratio(sharded, plain); }
  TrainBenchOptions sizes(const StepOptions& options) const {
    return {
        .batch = batch,
        .vocabulary = 64,
        .length = length,
        .width = width,
        .heads = 4,
        .hidden = 4 * width,
        .layers = 4,
        .dp = 1,
        .tp = 1,
        .warm_up = 10,
        .steps = options.steps};
  }
};

std::vector<StepRow> rows_to_measure() {
  return {
      {.width = 64, .batch = 4, .length = 64, .most = 1.10},
      {.width = 64, .batch = 2, .length = 8, .most = 1.12},
      {.width = 256, .batch = 4, .length = 64, .most = 1.05},
      {.width = 256, .batch = 2, .length = 8, .most = 1.06}};
}

/// Adds medians of one round of both sides.
void add_round(StepRow& row, const StepOptions& options) {
  std::vector<double> plain, sharded;
  for (const StepPair& pair : bench_step(row.sizes(options))) {
    plain.push_back(pair.plain);
    sharded.push_back(pair.sharded);
  }
  row.plain.push_back(median(plain));
  row.sharded.push_back(median(sharded));
}

std::string measure(const StepOptions& options, std::vector<StepRow>& rows) {
  const std::string python = find_python(options.python);
  std::string version = "not found; --python names one that can import torch";
  for (StepRow& row : rows) {
    std::optional<TrainPeer> peer;
    if (!python.empty()) {
      peer.emplace(python, row.sizes(options));
      version = peer->version();
    }
    Progress progress(
        "step, " + row.name(), static_cast<uint64_t>(options.rounds), false,
        "rounds");
    for (int round = 0; round < options.rounds; ++round) {
      add_round(row, options);
      if (peer) {
        row.pytorch.push_back(peer->round());
      }
      progress.advance();
    }
  }
  return version;
}

std::vector<Target> targets_of(const std::vector<StepRow>& rows) {
  std::vector<Target> targets;
  for (const StepRow& row : rows) {
    targets.push_back(
        {row.name() + ": " + formatted("%.2f", row.ratio()) +
             " x the plain step, above " + formatted("%.2f", row.most),
         row.ratio() <= row.most});
  }
  return targets;
}

void print_table(
    const StepOptions& options, const std::vector<StepRow>& rows,
    const std::string& version) {
  TextTable table({"", "plain ms", "Tessera ms", "x plain", "PyTorch ms"});
  for (const StepRow& row : rows) {
    table.add(
        {row.name(), formatted("%.2f", 1e3 * median(row.plain)),
         formatted("%.2f", 1e3 * median(row.sharded)),
         formatted("%.2f", row.ratio()),
         row.pytorch.empty() ? ""
                             : formatted("%.2f", 1e3 * median(row.pytorch))});
  }
  const Terminal terminal = detect_terminal(STDOUT_FILENO, false);
  print(wrapped(
      "GPT of 4 layers, f32, AdamW, on a mesh of one rank; CPU time, " +
          counted(options.rounds, "round") + " of " +
          counted(options.steps, "step") +
          ", medians; PyTorch DTensor (wall time): " + version + "\n\n" +
          table.draw(terminal) + "\n" + targets_text(targets_of(rows)),
      terminal));
}

void print_json(
    const StepOptions& options, const std::vector<StepRow>& rows,
    const std::string& version) {
  auto entries = ordered_json::array();
  for (const StepRow& row : rows) {
    entries.push_back(
        {{"width", row.width},
         {"batch", row.batch},
         {"length", row.length},
         {"plain_seconds", row.plain},
         {"sharded_seconds", row.sharded},
         {"pytorch_seconds", row.pytorch},
         {"ratio", row.ratio()}});
  }
  const ordered_json json = {
      {"rounds", options.rounds},
      {"steps", options.steps},
      {"pytorch", version},
      {"rows", entries},
      {"missed", missed(targets_of(rows))}};
  print(json.dump(2) + "\n");
}

int run_step(const StepOptions& options) {
  std::vector<StepRow> rows = rows_to_measure();
  const std::string version = measure(options, rows);
  options.json ? print_json(options, rows, version)
               : print_table(options, rows, version);
  return 0;
}

}  // namespace

void add_bench_step(CLI::App& bench, int& exit_code) {
  CLI::App* step = bench.add_subcommand(
      "step", "a training step on a mesh of one rank beside the plain step");
  const auto options = std::make_shared<StepOptions>();
  step->add_option("--rounds", options->rounds, "5 unless told")
      ->check(CLI::Range(1, 1000));
  step->add_option("--steps", options->steps, "per round: 20")
      ->check(CLI::Range(1, 10000));
  step->add_option(
      "--python", options->python, "a Python that can import torch");
  step->add_flag("--json", options->json, "print JSON");
  step->callback([options, &exit_code] { exit_code = run_step(*options); });
}

}  // namespace tessera::cli
