// tessera bench dispatch: what a sharded tensor adds to an operator that
// communicates nothing, in turns with PyTorch's DTensor.
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <memory>
#include <optional>

#include "bench.h"
#include "bench_workers.h"
#include "cli/command.h"
#include "cli/text/progress.h"
#include "cli/text/terminal.h"
#include "cli/text/text_table.h"
#include "dispatch_pytorch.h"
#include "dispatch_target.h"
#include "python_peer.h"

namespace tessera::cli {
namespace {

using nlohmann::ordered_json;

constexpr double kMostPerDispatch = 0.5e-6;  // seconds
constexpr double kLeastRatio = 8;

struct Options {
  DispatchBenchOptions bench;
  int rounds = 3;
  std::string device = "cpu";
  std::string python;
  bool misses = false;
  bool json = false;
};

/// One operator over all rounds.
struct Row {
  std::string name;
  int64_t dispatched = 0;
  bool communicates = false;
  std::vector<double> plain_seconds;
  std::vector<double> extra_seconds;
  bool pytorch_communicates = false;
  std::vector<double> pytorch_plain_seconds;  // none without PyTorch
  std::vector<double> pytorch_extra_seconds;

  double per_dispatch() const {
    return median(extra_seconds) / static_cast<double>(dispatched);
  }
  /// Nothing where a side has no figure.
  std::optional<double> ratio() const {
    if (communicates || pytorch_extra_seconds.empty()) {
      return std::nullopt;
    }
    return extra_ratio(pytorch_extra_seconds, extra_seconds);
  }
};

struct Result {
  std::string pytorch;  // version, or why there is none
  std::vector<Row> rows;
};

void add_round(Result& result, const std::vector<DispatchCost>& costs) {
  result.rows.resize(costs.size());
  for (size_t i = 0; i < costs.size(); ++i) {
    Row& row = result.rows[i];
    row.name = costs[i].name;
    row.dispatched = costs[i].dispatched;
    row.communicates = row.communicates || costs[i].communicates;
    row.plain_seconds.push_back(costs[i].plain_seconds);
    row.extra_seconds.push_back(costs[i].extra_seconds);
  }
}

void add_pytorch_round(Result& result, const ordered_json& answer) {
  for (Row& row : result.rows) {
    const ordered_json& cost = answer.at(row.name);
    row.pytorch_communicates =
        row.pytorch_communicates || cost.contains("communicates");
    if (!row.pytorch_communicates) {
      row.pytorch_plain_seconds.push_back(cost.at("plain").get<double>());
      row.pytorch_extra_seconds.push_back(cost.at("extra").get<double>());
    }
  }
}

Result measure(const Options& options) {
  Result result;
  std::optional<PythonPeer> peer;
  result.pytorch = start_dispatch_peer(
      peer, options.python,
      {"hits", std::to_string(options.bench.batches),
       std::to_string(options.bench.calls), options.device});
  Progress progress(
      "dispatch", static_cast<uint64_t>(options.rounds), false, "rounds");
  for (int round = 0; round < options.rounds; ++round) {
    add_round(result, bench_dispatch(options.bench));
    if (peer) {
      peer->send("round");
      add_pytorch_round(result, ordered_json::parse(peer->receive()));
    }
    progress.advance();
  }
  return result;
}

std::vector<Target> targets_of(const Result& result) {
  std::vector<Target> targets;
  for (const Row& row : result.rows) {
    if (row.communicates) {
      targets.push_back({row.name + " communicates", false});
      continue;
    }
    targets.push_back(
        {row.name + " " + microseconds(row.per_dispatch()) +
             " us per dispatched call, above " + microseconds(kMostPerDispatch),
         row.per_dispatch() <= kMostPerDispatch});
    if (const auto ratio = row.ratio()) {
      targets.push_back(
          {row.name + " " + formatted("%.1f", *ratio) + " times, below " +
               formatted("%.0f", kLeastRatio),
           *ratio >= kLeastRatio});
    }
  }
  return targets;
}

std::vector<std::string> cells_of(const Row& row) {
  std::vector<std::string> cells{row.name, std::to_string(row.dispatched)};
  if (row.communicates) {
    cells.insert(cells.end(), {"communicates", "", ""});
  } else {
    cells.insert(
        cells.end(), {microseconds(median(row.plain_seconds)),
                      microseconds(median(row.extra_seconds)),
                      microseconds(row.per_dispatch())});
  }
  if (row.pytorch_communicates) {
    cells.insert(cells.end(), {"communicates", ""});
  } else if (!row.pytorch_extra_seconds.empty()) {
    cells.insert(
        cells.end(), {microseconds(median(row.pytorch_plain_seconds)),
                      microseconds(median(row.pytorch_extra_seconds))});
  }
  if (const auto ratio = row.ratio()) {
    cells.push_back(formatted("%.1f", *ratio));
  }
  return cells;
}

void print_table(const Options& options, const Result& result) {
  TextTable table(
      {"", "dispatched", "plain us", "extra us", "per dispatched", "PyTorch us",
       "extra us", "PyTorch / Tessera"});
  for (const Row& row : result.rows) {
    table.add(cells_of(row));
  }
  const Terminal terminal = detect_terminal(STDOUT_FILENO, false);
  print(wrapped(
      "16x16 f32 on " + options.device +
          ", 2 ranks (threads), what a call on sharded tensors takes beyond "
          "the "
          "plain one on the shards; medians of " +
          counted(options.rounds, "round") + " of " +
          std::to_string(options.bench.batches) + " x " +
          counted(options.bench.calls, "call") +
          "; PyTorch DTensor, 2 Gloo processes: " + result.pytorch + "\n\n" +
          table.draw(terminal) + "\n" + targets_text(targets_of(result)),
      terminal));
}

void print_json(const Options& options, const Result& result) {
  auto rows = ordered_json::array();
  for (const Row& row : result.rows) {
    ordered_json entry = {
        {"name", row.name},
        {"dispatched", row.dispatched},
        {"communicates", row.communicates}};
    if (!row.communicates) {
      entry["plain_seconds"] = row.plain_seconds;
      entry["extra_seconds"] = row.extra_seconds;
      entry["extra_seconds_per_dispatched"] = row.per_dispatch();
    }
    if (!row.pytorch_extra_seconds.empty()) {
      entry["pytorch_plain_seconds"] = row.pytorch_plain_seconds;
      entry["pytorch_extra_seconds"] = row.pytorch_extra_seconds;
    }
    if (const auto ratio = row.ratio()) {
      entry["ratio"] = *ratio;
    }
    rows.push_back(std::move(entry));
  }
  const ordered_json json = {
      {"device", options.device},
      {"ranks", 2},
      {"rounds", options.rounds},
      {"batches", options.bench.batches},
      {"calls", options.bench.calls},
      {"pytorch", result.pytorch},
      {"operators", rows},
      {"missed", missed(targets_of(result))}};
  print(json.dump(2) + "\n");
}

int run_dispatch(Options& options) {
  if (options.misses) {
    return run_misses(options.python, options.json);
  }
  options.bench.cuda = options.device == "cuda";
  const Result result = measure(options);
  options.json ? print_json(options, result) : print_table(options, result);
  return 0;
}

}  // namespace

std::string start_dispatch_peer(
    std::optional<PythonPeer>& peer, const std::string& python,
    const std::vector<std::string>& arguments) {
  const std::string found = find_python(python);
  if (found.empty()) {
    return "not found; --python names one that can import torch";
  }
  std::string by_hand = "benchmarks/dispatch_pytorch.py";
  for (const std::string& argument : arguments) {
    by_hand += " " + argument;
  }
  peer.emplace(found, dispatch_pytorch, arguments, std::move(by_hand));
  return ordered_json::parse(peer->receive())["torch"].get<std::string>();
}

double extra_ratio(
    const std::vector<double>& above, std::vector<double> below) {
  // An extra within the clock's error may come out as nothing or less.
  constexpr double kClock = 10e-9;
  for (double& value : below) {
    value = std::max(value, kClock);
  }
  return median_ratio(above, below);
}

std::string microseconds(double seconds) {
  return formatted("%.2f", 1e6 * seconds);
}

void add_bench_dispatch(CLI::App& bench, int& exit_code) {
  CLI::App* dispatch = bench.add_subcommand(
      "dispatch", "What sharded tensors add to the cost of an operator");
  auto options = std::make_shared<Options>();
  dispatch->add_option("--rounds", options->rounds, "3 unless told")
      ->check(CLI::Range(1, 1000));
  dispatch
      ->add_option(
          "--batches", options->bench.batches, "per round and operator: 200")
      ->check(CLI::Range(1, 100000));
  dispatch->add_option("--calls", options->bench.calls, "per batch: 20")
      ->check(CLI::Range(1, 100000));
  dispatch->add_option("--device", options->device, "cpu unless told")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  dispatch->add_option(
      "--python", options->python, "a Python that can import torch");
  dispatch->add_flag(
      "--misses", options->misses,
      "what the first call with a new shape takes instead");
  dispatch->add_flag("--json", options->json, "print JSON");
  dispatch->callback(
      [options, &exit_code] { exit_code = run_dispatch(*options); });
}

}  // namespace tessera::cli
