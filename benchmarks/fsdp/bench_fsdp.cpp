// tessera bench fsdp: fully_shard beside PyTorch's, which runs over Gloo. Each
// round starts each engine's ranks once, by `tessera run`.
#include "bench_fsdp.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <memory>

#include "benchmarks/bench.h"
#include "benchmarks/engine_worker.h"
#include "benchmarks/python_peer.h"
#include "cli/command.h"
#include "cli/text/progress.h"
#include "demo_text.h"
#include "examples/demo/demo_vocabulary.h"
#include "fsdp_pytorch.h"

namespace tessera::cli {
namespace {

using nlohmann::ordered_json;

/// The numbers that say what a case is, in the order of fsdp_pytorch.py.
std::vector<int64_t> numbers_of(const FsdpCase& one) {
  return {one.ranks,   one.copies,  one.bf16 ? 1 : 0, one.micro_batches,
          one.keep,    one.batch,   one.vocabulary,   one.length,
          one.width,   one.heads(), one.hidden(),     one.layers,
          one.warm_up, one.steps};
}

FsdpFigures figures_of(const ordered_json& json) {
  return {
      .losses = json["losses"],
      .calls = json["calls"],
      .bytes = json["bytes"],
      .peak_bytes = json["peak_bytes"]};
}

/// PyTorch's processes; they sleep between rounds.
class Pytorch {
 public:
  Pytorch(const std::string& python, const FsdpCase& one)
      : peer_(
            python, fsdp_pytorch, words_of(one),
            "benchmarks/fsdp_pytorch.py " + one.name()),
        hello_(ordered_json::parse(peer_.receive())) {}

  std::string version() const { return hello_["torch"]; }
  FsdpFigures figures() const { return figures_of(hello_); }
  /// Returns the seconds of a step.
  double round() {
    peer_.send("round");
    return ordered_json::parse(peer_.receive()).get<double>();
  }

 private:
  static std::vector<std::string> words_of(const FsdpCase& one) {
    std::vector<std::string> words;
    for (const int64_t number : numbers_of(one)) {
      words.push_back(std::to_string(number));
    }
    return words;
  }

  PythonPeer peer_;
  ordered_json hello_;
};

/// Measures one engine once; nothing, and why, where it is not there.
std::optional<FsdpFigures> run_engine(
    const FsdpCase& one, const std::string& engine, std::string& absence) {
  std::vector<std::string> argv{"bench", "fsdp", "--case"};
  for (const int64_t number : numbers_of(one)) {
    argv.push_back(std::to_string(number));
  }
  const auto answer = run_on_engine(engine, one.ranks, argv, absence);
  if (!answer) {
    return std::nullopt;
  }
  const auto json = ordered_json::parse(*answer);
  FsdpFigures figures = figures_of(json);
  figures.step_seconds = json["step_seconds"].get<std::vector<double>>();
  return figures;
}

void add_round(
    FsdpResult& result, const std::string& engine, FsdpFigures figures) {
  for (FsdpRow& row : result.rows) {
    if (row.engine == engine) {
      row.figures.step_seconds.push_back(figures.step_seconds.at(0));
      row.figures.peak_bytes =
          std::min(row.figures.peak_bytes, figures.peak_bytes);
      return;
    }
  }
  result.rows.push_back({engine, std::move(figures)});
}

void measure(
    const FsdpSettings& settings, const FsdpCase& one,
    const std::string& python, FsdpReport& report) {
  FsdpResult result{.of = one};
  std::optional<Pytorch> pytorch;
  if (!python.empty()) {
    pytorch.emplace(python, one);
    report.pytorch = pytorch->version();
    result.pytorch = pytorch->figures();
  }
  Progress progress(
      "fsdp", static_cast<uint64_t>(settings.rounds), false, "rounds");
  for (int round = 0; round < settings.rounds; ++round) {
    for (const std::string& engine : settings.engines) {
      if (report.absent.contains(engine)) {
        continue;
      }
      std::string absence;
      if (auto figures = run_engine(one, engine, absence)) {
        add_round(result, engine, *std::move(figures));
      } else {
        report.absent[engine] = absence;
      }
    }
    if (pytorch) {
      result.pytorch->step_seconds.push_back(pytorch->round());
    }
    progress.advance();
  }
  report.results.push_back(std::move(result));
}

int run_worker(const FsdpSettings& settings) {
  const auto figures =
      measure_as_rank([&] { return bench_fsdp(settings.cases.at(0)); });
  if (figures) {  // the process of rank 0 writes
    const ordered_json json = {
        {"losses", figures->losses},
        {"calls", figures->calls},
        {"bytes", figures->bytes},
        {"peak_bytes", figures->peak_bytes},
        {"step_seconds", figures->step_seconds}};
    std::ofstream(settings.worker) << json.dump() << "\n";
  }
  return 0;
}

int run_fsdp(const FsdpSettings& settings) {
  if (!settings.worker.empty()) {
    return run_worker(settings);
  }
  setenv("OMP_NUM_THREADS", "1", 1);  // one thread per rank on all sides
  const std::string python = find_python(settings.python);
  FsdpReport report;
  report.pytorch = "not found; --python names one that can import torch";
  for (const FsdpCase& one : settings.cases) {
    measure(settings, one, python, report);
  }
  print_fsdp(settings, report);
  // A comparison of different models is worth nothing.
  const bool same = std::all_of(
      report.results.begin(), report.results.end(),
      [](const FsdpResult& result) { return result.is_same_model(); });
  return same ? 0 : kExitFailure;
}

/// What the words of the command line ask for.
struct Asked {
  std::vector<int64_t> widths{256, 1024};
  std::vector<std::string> dtypes{"f32", "bf16"};
  int micro_batches = 1;
  bool hybrid = false;
  FsdpCase each;
  std::vector<int64_t> worker_case;
};

FsdpCase case_of(const std::vector<int64_t>& n) {
  FsdpCase one{
      .ranks = static_cast<int>(n[0]),
      .copies = static_cast<int>(n[1]),
      .bf16 = n[2] != 0,
      .micro_batches = static_cast<int>(n[3]),
      .keep = static_cast<int>(n[4]),
      .batch = n[5],
      .vocabulary = n[6],
      .length = n[7],
      .width = n[8],
      .layers = n[11],
      .warm_up = static_cast<int>(n[12]),
      .steps = static_cast<int>(n[13])};
  return one;
}

std::vector<FsdpCase> cases_of(const Asked& asked) {
  if (!asked.worker_case.empty()) {
    return {case_of(asked.worker_case)};
  }
  std::vector<FsdpCase> cases;
  for (const int64_t width : asked.widths) {
    for (const std::string& dtype : asked.dtypes) {
      for (int keep = 0; keep < (asked.micro_batches > 1 ? 3 : 1); ++keep) {
        FsdpCase one = asked.each;
        one.width = width;
        one.bf16 = dtype == "bf16";
        one.keep = keep;
        one.micro_batches = asked.micro_batches;
        one.ranks = asked.hybrid ? 4 : 2;
        one.copies = asked.hybrid ? 2 : 1;
        one.batch = std::max<int64_t>(
            one.batch, int64_t{one.ranks} * one.micro_batches);
        one.vocabulary = static_cast<int64_t>(characters_of(demo_text).size());
        cases.push_back(one);
      }
    }
  }
  return cases;
}

}  // namespace

void add_bench_fsdp(CLI::App& bench, int& exit_code) {
  CLI::App* fsdp = bench.add_subcommand(
      "fsdp", "fully_shard of a GPT, beside PyTorch's over Gloo");
  auto settings = std::make_shared<FsdpSettings>();
  auto asked = std::make_shared<Asked>();
  fsdp->add_option("--width", asked->widths, "256 and 1024 unless told")
      ->check(CLI::IsMember({64, 256, 1024}));
  fsdp->add_option("--dtype", asked->dtypes, "f32, and bf16 with sums in f32")
      ->check(CLI::IsMember({"f32", "bf16"}));
  fsdp->add_option("--engine", settings->engines, "threads and gloo; mpi")
      ->check(CLI::IsMember({"threads", "gloo", "mpi"}));
  fsdp->add_option(
          "--accumulate", asked->micro_batches,
          "micro-batches of a step, in three ways: 1, that is none")
      ->check(CLI::Range(1, 16));
  fsdp->add_flag(
      "--hybrid", asked->hybrid, "4 ranks: two copies of shards over two");
  fsdp->add_option("--layers", asked->each.layers, "4 unless told")
      ->check(CLI::Range(1, 100));
  fsdp->add_option("--rounds", settings->rounds, "3 unless told")
      ->check(CLI::Range(1, 1000));
  fsdp->add_option("--steps", asked->each.steps, "per round: 5")
      ->check(CLI::Range(1, 100000));
  fsdp->add_option(
          "--warm-up", asked->each.warm_up,
          "steps before, whose losses are compared: 3")
      ->check(CLI::Range(1, 1000));
  fsdp->add_option(
      "--python", settings->python, "a Python that can import torch");
  fsdp->add_flag("--json", settings->json, "print JSON");
  // Hidden: how the ranks are started.
  fsdp->add_option("--worker", settings->worker, "measure as a rank")
      ->group("");
  fsdp->add_option("--case", asked->worker_case, "what is measured")
      ->expected(14)
      ->group("");
  fsdp->callback([settings, asked, &exit_code] {
    settings->cases = cases_of(*asked);
    exit_code = run_fsdp(*settings);
  });
}

}  // namespace tessera::cli
