// tessera bench checkpoint: saving and loading on every engine, in turns with
// plain files of the same bytes and with PyTorch's distributed checkpoint. Each
// round starts each engine's ranks once, by `tessera run`.
#include "bench_checkpoint.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>

#include "benchmarks/bench.h"
#include "benchmarks/engine_worker.h"
#include "benchmarks/python_peer.h"
#include "checkpoint_pytorch.h"
#include "cli/text/progress.h"

namespace tessera::cli {
namespace {

using nlohmann::ordered_json;

CheckpointTimes times_of(const ordered_json& json) {
  CheckpointTimes times;
  for (const auto& [what, took] : json.items()) {
    times[what] = {took["seconds"], took["cpu_seconds"]};
  }
  return times;
}

/// PyTorch's processes; they sleep between rounds.
class Pytorch {
 public:
  Pytorch(const std::string& python, const CheckpointBenchOptions& bench)
      : peer_(
            python, checkpoint_pytorch,
            {std::to_string(bench.ranks), std::to_string(bench.mebibytes),
             std::to_string(kCheckpointTensors)},
            "benchmarks/checkpoint_pytorch.py 4 1024 16"),
        hello_(ordered_json::parse(peer_.receive())) {}

  std::string version() const { return hello_["torch"]; }
  double sum() const { return hello_["sum"]; }
  CheckpointTimes round() {
    peer_.send("round");
    return times_of(ordered_json::parse(peer_.receive()));
  }

 private:
  PythonPeer peer_;
  ordered_json hello_;
};

/// Measures one engine once; nothing, and why, where it is not there.
std::optional<CheckpointRound> run_engine(
    const CheckpointSettings& settings, const std::string& engine,
    bool raw_first, std::string& absence) {
  std::vector<std::string> argv{
      "bench", "checkpoint", "--mib", std::to_string(settings.bench.mebibytes)};
  if (!raw_first) {
    argv.emplace_back("--raw-last");
  }
  const auto answer =
      run_on_engine(engine, settings.bench.ranks, argv, absence);
  if (!answer) {
    return std::nullopt;
  }
  const auto json = ordered_json::parse(*answer);
  return CheckpointRound{json["sum"], times_of(json["times"])};
}

void add(CheckpointSide& side, const CheckpointTimes& times) {
  for (const auto& [what, time] : times) {
    side[what].add(time);
  }
}

void check_sum(
    const std::string& engine, double sum, const std::optional<Pytorch>& peer) {
  if (peer && peer->sum() != sum) {
    throw std::runtime_error(
        "the elements that " + engine + " saved sum up to " +
        formatted("%.0f", sum) + ", those of PyTorch to " +
        formatted("%.0f", peer->sum()) + ": there is nothing to compare");
  }
}

CheckpointResult measure(const CheckpointSettings& settings) {
  // One thread per rank on all sides.
  setenv("OMP_NUM_THREADS", "1", 1);
  CheckpointResult result;
  std::optional<Pytorch> pytorch;
  if (const std::string python = find_python(settings.python); python.empty()) {
    result.pytorch = "not found; --python names one that can import torch";
  } else {
    pytorch.emplace(python, settings.bench);
    result.pytorch = pytorch->version();
  }
  for (const std::string& engine : settings.engines) {
    result.engines.emplace_back(engine, CheckpointSide());
  }
  Progress progress(
      "checkpoint", static_cast<uint64_t>(settings.rounds), false, "rounds");
  for (int round = 0; round < settings.rounds; ++round) {
    for (auto& [engine, side] : result.engines) {
      if (result.absent.contains(engine)) {
        continue;
      }
      std::string absence;
      if (const auto taken =
              run_engine(settings, engine, round % 2 == 0, absence)) {
        check_sum(engine, taken->sum, pytorch);
        add(side, taken->times);
      } else {
        result.absent[engine] = absence;
      }
    }
    if (pytorch) {
      add(result.pytorch_side, pytorch->round());
    }
    progress.advance();
  }
  return result;
}

int run_worker(const CheckpointSettings& settings) {
  CheckpointBenchOptions bench = settings.bench;
  // Of the one who started this, and removed by it however this ends.
  bench.folder = std::filesystem::path(settings.worker).parent_path();
  const auto round = measure_as_rank([&] { return bench_checkpoint(bench); });
  if (round) {  // the process of rank 0 writes
    ordered_json times = ordered_json::object();
    for (const auto& [what, time] : round->times) {
      times[what] = {
          {"seconds", time.seconds}, {"cpu_seconds", time.cpu_seconds}};
    }
    const ordered_json json = {{"sum", round->sum}, {"times", times}};
    std::ofstream(settings.worker) << json.dump() << "\n";
  }
  return 0;
}

int run_checkpoint(const CheckpointSettings& settings) {
  if (!settings.worker.empty()) {
    return run_worker(settings);
  }
  const CheckpointResult result = measure(settings);
  settings.json ? print_checkpoint_json(settings, result)
                : print_checkpoint_table(settings, result);
  return 0;
}

}  // namespace

void CheckpointSeries::add(const CheckpointTime& time) {
  seconds.push_back(time.seconds);
  cpu_seconds.push_back(time.cpu_seconds);
}

void add_bench_checkpoint(CLI::App& bench, int& exit_code) {
  CLI::App* checkpoint = bench.add_subcommand(
      "checkpoint", "Saving and loading, beside plain files and PyTorch's DCP");
  auto settings = std::make_shared<CheckpointSettings>();
  checkpoint->add_option("--ranks", settings->bench.ranks, "4 unless told")
      ->check(CLI::Range(1, 64));
  checkpoint->add_option("--engine", settings->engines, "threads and gloo; mpi")
      ->check(CLI::IsMember({"threads", "gloo", "mpi"}));
  checkpoint
      ->add_option(
          "--mib", settings->bench.mebibytes, "all tensors, 1024 unless told")
      ->check(CLI::Range(1, 65536));
  checkpoint->add_option("--rounds", settings->rounds, "7 unless told")
      ->check(CLI::Range(1, 1000));
  checkpoint->add_option(
      "--python", settings->python, "a Python that can import torch");
  checkpoint->add_flag("--json", settings->json, "print JSON");
  checkpoint->add_option("--worker", settings->worker, "measure as a rank")
      ->group("");  // hidden: how the ranks are started
  checkpoint->add_flag("!--raw-last", settings->bench.raw_first)->group("");
  checkpoint->callback(
      [settings, &exit_code] { exit_code = run_checkpoint(*settings); });
}

}  // namespace tessera::cli
