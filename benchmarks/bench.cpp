// tessera bench: figures beside those of PyTorch, taken in turns in one run.
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>

#include "bench.h"
#include "bench_workers.h"
#include "cli/command.h"
#include "cli/text/progress.h"
#include "cli/text/terminal.h"
#include "cli/text/text_table.h"
#include "python_peer.h"
#include "redistribute_pytorch.h"

namespace tessera::cli {
namespace {

using nlohmann::ordered_json;

struct Options {
  BenchOptions bench;
  int rounds = 5;
  std::string python;
  bool json = false;
};

/// One transition over all rounds.
struct Row {
  std::string name;
  std::vector<double> seconds;
  std::vector<double> memcpy_seconds;
  std::vector<double> pytorch_seconds;  // none without PyTorch

  double ratio() const { return median_ratio(pytorch_seconds, seconds); }
};

struct Result {
  std::string pytorch;  // version, or why there is none
  std::vector<Row> rows;
  std::vector<BenchHost> hosts;

  double host(double BenchHost::*figure) const {
    std::vector<double> values;
    for (const BenchHost& h : hosts) {
      values.push_back(h.*figure);
    }
    return median(values);
  }
};

void add_round(Result& result, const BenchRound& round) {
  result.rows.resize(round.transitions.size());
  for (size_t i = 0; i < round.transitions.size(); ++i) {
    const BenchTransition& t = round.transitions[i];
    result.rows[i].name = t.name;
    result.rows[i].seconds.push_back(t.seconds);
    result.rows[i].memcpy_seconds.push_back(t.memcpy_seconds);
  }
  result.hosts.push_back(round.host);
}

Result measure(const Options& options) {
  const auto rows = static_cast<int64_t>(std::llround(
      std::sqrt(static_cast<double>(options.bench.mebibytes << 18))));
  Result result;
  std::optional<PythonPeer> peer;
  const std::string python = find_python(options.python);
  if (python.empty()) {
    result.pytorch = "not found; --python names one that can import torch";
  } else {
    peer.emplace(
        python, redistribute_pytorch,
        std::vector<std::string>{
            std::to_string(options.bench.ranks), std::to_string(rows),
            std::to_string(options.bench.repeats)},
        "benchmarks/redistribute_pytorch.py 4 2048 10");
    result.pytorch =
        ordered_json::parse(peer->receive())["torch"].get<std::string>();
  }
  Progress progress(
      "redistribute", static_cast<uint64_t>(options.rounds), false, "rounds");
  for (int round = 0; round < options.rounds; ++round) {
    add_round(result, bench_redistribute(options.bench));
    if (peer) {
      peer->send("round");
      const auto seconds = ordered_json::parse(peer->receive());
      for (Row& row : result.rows) {
        row.pytorch_seconds.push_back(seconds[row.name].get<double>());
      }
    }
    progress.advance();
  }
  return result;
}

void print_table(const Options& options, const Result& result) {
  TextTable table(
      {"", "Tessera ms", "memcpy ms", "x memcpy", "PyTorch ms",
       "PyTorch / Tessera"});
  for (const Row& row : result.rows) {
    std::vector<std::string> cells{
        row.name, formatted("%.2f", 1e3 * median(row.seconds)),
        formatted("%.2f", 1e3 * median(row.memcpy_seconds)),
        formatted("%.1f", median(row.seconds) / median(row.memcpy_seconds))};
    if (!row.pytorch_seconds.empty()) {
      cells.push_back(formatted("%.2f", 1e3 * median(row.pytorch_seconds)));
      cells.push_back(formatted("%.1f", row.ratio()));
    }
    table.add(std::move(cells));
  }
  const Terminal terminal = detect_terminal(STDOUT_FILENO, false);
  print(wrapped(
      "f32, " + std::to_string(options.bench.mebibytes) + " MiB, " +
          counted(options.bench.ranks, "rank") + " (threads), " +
          counted(options.rounds, "round") + " of " +
          std::to_string(options.bench.repeats) +
          ", medians; PyTorch DTensor over Gloo processes: " + result.pytorch +
          "\n\n" + table.draw(terminal) +
          "\nhost time of one call: unchanged " +
          formatted(
              "%.2f us", 1e6 * result.host(&BenchHost::unchanged_seconds)) +
          ", R -> S(0) of 64 elements " +
          formatted("%.2f us", 1e6 * result.host(&BenchHost::cut_seconds)) +
          " (a plain narrow and clone: " +
          formatted(
              "%.2f us", 1e6 * result.host(&BenchHost::plain_cut_seconds)) +
          ")\n",
      terminal));
}

void print_json(const Options& options, const Result& result) {
  auto rows = ordered_json::array();
  for (const Row& row : result.rows) {
    ordered_json entry = {
        {"name", row.name},
        {"seconds", row.seconds},
        {"memcpy_seconds", row.memcpy_seconds}};
    if (!row.pytorch_seconds.empty()) {
      entry["pytorch_seconds"] = row.pytorch_seconds;
      entry["ratio"] = row.ratio();
    }
    rows.push_back(std::move(entry));
  }
  const ordered_json json = {
      {"ranks", options.bench.ranks},
      {"mebibytes", options.bench.mebibytes},
      {"rounds", options.rounds},
      {"repeats", options.bench.repeats},
      {"pytorch", result.pytorch},
      {"transitions", rows},
      {"host_seconds",
       {{"unchanged", result.host(&BenchHost::unchanged_seconds)},
        {"cut", result.host(&BenchHost::cut_seconds)},
        {"plain_cut", result.host(&BenchHost::plain_cut_seconds)}}}};
  print(json.dump(2) + "\n");
}

int run_redistribute(const Options& options) {
  const Result result = measure(options);
  options.json ? print_json(options, result) : print_table(options, result);
  return 0;
}

}  // namespace

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double median_ratio(
    const std::vector<double>& above, const std::vector<double>& below) {
  std::vector<double> ratios;
  for (size_t i = 0; i < std::min(above.size(), below.size()); ++i) {
    ratios.push_back(above[i] / below[i]);
  }
  return median(ratios);
}

std::string formatted(const char* format, double value) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, format, value);
  return buffer;
}

std::vector<std::string> missed(const std::vector<Target>& targets) {
  std::vector<std::string> texts;
  for (const Target& target : targets) {
    if (!target.met) {
      texts.push_back(target.text);
    }
  }
  return texts;
}

std::string targets_text(const std::vector<Target>& targets) {
  const std::vector<std::string> texts = missed(targets);
  std::string text = texts.empty()
                         ? "all " + counted(targets.size(), "target") + " met\n"
                         : "missed:\n";
  for (const std::string& line : texts) {
    text += "  " + line + "\n";
  }
  return text;
}

namespace {

void set_up_bench(CLI::App& bench, Invocation& invocation) {
  bench.require_subcommand(1);
  CLI::App* redistribute = bench.add_subcommand(
      "redistribute", "S0->R, S0->S1, P->R and P->S0 of one tensor");
  auto options = std::make_shared<Options>();
  redistribute->add_option("--ranks", options->bench.ranks, "4 unless told")
      ->check(CLI::Range(1, 64));
  redistribute
      ->add_option("--mib", options->bench.mebibytes, "tensor size, 16 MiB")
      ->check(CLI::Range(1, 4096));
  redistribute->add_option("--rounds", options->rounds, "5 unless told")
      ->check(CLI::Range(1, 1000));
  redistribute->add_option("--repeats", options->bench.repeats, "per round: 10")
      ->check(CLI::Range(1, 1000));
  redistribute->add_option(
      "--python", options->python, "a Python that can import torch");
  redistribute->add_flag("--json", options->json, "print JSON");
  redistribute->callback([options, &invocation] {
    invocation.exit_code = run_redistribute(*options);
  });
  add_bench_comm(bench, invocation.exit_code);
  add_bench_dispatch(bench, invocation.exit_code);
  add_bench_train(bench, invocation.exit_code);
  add_bench_step(bench, invocation.exit_code);
  add_bench_checkpoint(bench, invocation.exit_code);
  add_bench_operators(bench, invocation.exit_code);
  add_bench_recompute(bench, invocation.exit_code);
  add_bench_init(bench, invocation.exit_code);
  add_bench_clip(bench, invocation.exit_code);
  add_bench_fsdp(bench, invocation.exit_code);
}

const Command kBench{"bench", &set_up_bench};

}  // namespace

}  // namespace tessera::cli
