// tessera bench train: the demo's GPT on every engine, in turns with the same
// model in PyTorch's DTensor over Gloo. Each round starts each engine's ranks
// once, by `tessera run`.
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>

#include "bench.h"
#include "bench_train.h"
#include "bench_workers.h"
#include "benchmarks/training/bench_train_peer.h"
#include "cli/command.h"
#include "cli/text/progress.h"
#include "demo_text.h"
#include "engine_worker.h"
#include "examples/demo/demo_vocabulary.h"
#include "python_peer.h"

namespace tessera::cli {
namespace {

using nlohmann::ordered_json;

/// Two ranks share the layers; four do so in two groups.
TrainBenchOptions on_ranks(TrainBenchOptions bench, int ranks) {
  bench.dp = ranks / 2;
  bench.tp = 2;
  return bench;
}

/// Returns the largest |a - b| / |b| over the steps; infinite where a loss is
/// missing or not a number.
double relative_difference(
    const std::vector<double>& a, const std::vector<double>& b) {
  double largest = a.size() == b.size() ? 0 : INFINITY;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double part = std::abs(a[i] - b[i]) / std::abs(b[i]);
    largest = std::max(largest, std::isnan(part) ? INFINITY : part);
  }
  return largest;
}

/// Measures one engine once; nothing, and why, where it is not there.
std::optional<TrainTime> run_engine(
    const TrainBenchOptions& bench, const std::string& engine,
    std::string& absence) {
  const auto answer = run_on_engine(
      engine, bench.ranks(),
      {"bench", "train", "--ranks", std::to_string(bench.ranks()), "--steps",
       std::to_string(bench.steps), "--warm-up", std::to_string(bench.warm_up)},
      absence);
  if (!answer) {
    return std::nullopt;
  }
  const auto json = ordered_json::parse(*answer);
  return TrainTime{json["losses"], json["step_seconds"]};
}

void add_time(
    TrainMesh& mesh, const std::string& engine, const TrainTime& time) {
  const auto known = std::find_if(
      mesh.rows.begin(), mesh.rows.end(),
      [&](const TrainRow& row) { return row.engine == engine; });
  TrainRow& row = known != mesh.rows.end()
                      ? *known
                      : mesh.rows.emplace_back(TrainRow{engine});
  row.step_seconds.push_back(time.step_seconds);
  if (!mesh.pytorch_losses.empty()) {
    row.difference = std::max(
        row.difference, relative_difference(time.losses, mesh.pytorch_losses));
  }
}

void measure_mesh(
    const TrainSettings& settings, int ranks, const std::string& python,
    TrainResult& result) {
  TrainMesh mesh{.bench = on_ranks(settings.bench, ranks)};
  std::optional<TrainPeer> pytorch;
  if (!python.empty()) {
    pytorch.emplace(python, mesh.bench);
    result.pytorch = pytorch->version();
    mesh.pytorch_losses = pytorch->losses();
  }
  Progress progress(
      "train, " + counted(ranks, "rank"),
      static_cast<uint64_t>(settings.rounds), false, "rounds");
  for (int round = 0; round < settings.rounds; ++round) {
    for (const std::string& engine : settings.engines) {
      if (result.absent.contains(engine)) {
        continue;
      }
      std::string absence;
      if (auto time = run_engine(mesh.bench, engine, absence)) {
        add_time(mesh, engine, *std::move(time));
      } else {
        result.absent[engine] = absence;
      }
    }
    if (pytorch) {
      mesh.pytorch_step_seconds.push_back(pytorch->round());
    }
    progress.advance();
  }
  result.meshes.push_back(std::move(mesh));
}

TrainResult measure(const TrainSettings& settings) {
  // One thread per rank on all sides.
  setenv("OMP_NUM_THREADS", "1", 1);
  const std::string python = find_python(settings.python);
  TrainResult result;
  result.pytorch = "not found; --python names one that can import torch";
  for (const int ranks : settings.ranks) {
    measure_mesh(settings, ranks, python, result);
  }
  return result;
}

int run_worker(const TrainSettings& settings) {
  const auto time = measure_as_rank([&] {
    return bench_train(on_ranks(settings.bench, settings.ranks.at(0)));
  });
  if (time) {  // the process of rank 0 writes
    const ordered_json json = {
        {"losses", time->losses}, {"step_seconds", time->step_seconds}};
    std::ofstream(settings.worker) << json.dump() << "\n";
  }
  return 0;
}

int run_train(const TrainSettings& settings) {
  if (!settings.worker.empty()) {
    return run_worker(settings);
  }
  const TrainResult result = measure(settings);
  settings.json ? print_train_json(settings, result)
                : print_train_table(settings, result);
  // A comparison of different models is worth nothing.
  return result.is_same_model() ? 0 : kExitFailure;
}

}  // namespace

void add_bench_train(CLI::App& bench, int& exit_code) {
  CLI::App* train = bench.add_subcommand(
      "train", "Tokens per second of the demo's GPT, beside PyTorch's DTensor");
  auto settings = std::make_shared<TrainSettings>();
  train
      ->add_option(
          "--ranks", settings->ranks, "2 (tp=2) and 4 (dp=2,tp=2) unless told")
      ->check(CLI::IsMember({2, 4}));
  train->add_option("--engine", settings->engines, "threads, gloo and mpi")
      ->check(CLI::IsMember({"threads", "gloo", "mpi"}));
  train->add_option("--rounds", settings->rounds, "5 unless told")
      ->check(CLI::Range(1, 1000));
  train->add_option("--steps", settings->bench.steps, "per round: 50")
      ->check(CLI::Range(1, 100000));
  train
      ->add_option(
          "--warm-up", settings->bench.warm_up,
          "steps before, whose losses are compared: 10")
      ->check(CLI::Range(1, 1000));
  train->add_option(
      "--python", settings->python, "a Python that can import torch");
  train->add_flag("--json", settings->json, "print JSON");
  train->add_option("--worker", settings->worker, "measure as a rank")
      ->group("");  // hidden: how the ranks are started
  train->callback([settings, &exit_code] {
    settings->bench.vocabulary =
        static_cast<int64_t>(characters_of(demo_text).size());
    exit_code = run_train(*settings);
  });
}

}  // namespace tessera::cli
