#include "turns.h"

#include <CLI/CLI.hpp>

#include <cstdlib>
#include <ctime>
#include <fstream>

#include <ATen/ops/full.h>
#include <tessera/comm/world.h>

#include "benchmarks/bench.h"
#include "benchmarks/engine_worker.h"
#include "benchmarks/interleaved.h"
#include "benchmarks/python_peer.h"
#include "cli/text/progress.h"

namespace tessera::cli {
namespace {

using nlohmann::ordered_json;

std::string by_hand(const PeerScript& script) {
  std::string text = script.path;
  for (const std::string& word : script.arguments) {
    text += " " + word;
  }
  return text;
}

void run_engine(
    const TurnOptions& options, const std::vector<std::string>& argv,
    Side& side, Turns& turns) {
  if (turns.absent.contains(side.name)) {
    return;
  }
  std::string absence;
  if (const auto answer =
          run_on_engine(side.name, options.ranks, argv, absence)) {
    side.rounds.push_back(ordered_json::parse(*answer));
  } else {
    turns.absent[side.name] = absence;
  }
}

}  // namespace

void add_turn_options(CLI::App& command, TurnOptions& options) {
  command.add_option("--ranks", options.ranks, "2 unless told")
      ->check(CLI::Range(1, 64));
  command
      .add_option(
          "--rounds", options.rounds,
          std::to_string(options.rounds) + " unless told")
      ->check(CLI::Range(1, 1000));
  command.add_option("--engine", options.engines, "threads, gloo and mpi")
      ->check(CLI::IsMember({"threads", "gloo", "mpi"}));
  command.add_option(
      "--python", options.python, "a Python that can import torch");
  command.add_flag("--json", options.json, "print JSON");
  command.add_option("--worker", options.worker, "measure as a rank")
      ->group("");  // hidden: how the ranks are started
}

std::vector<double> Side::numbers(const std::string& key) const {
  std::vector<double> all;
  for (const ordered_json& round : rounds) {
    all.push_back(round.at(key).get<double>());
  }
  return all;
}

double Side::median_of(const std::string& key) const {
  return median(numbers(key));
}

std::optional<double> Turns::ratio(
    const Side& engine, const std::string& key) const {
  return peer ? std::optional(
                    median_ratio(peer->numbers(key), engine.numbers(key)))
              : std::nullopt;
}

std::vector<std::string> ratio_cells(const Turns& turns, const Side& side) {
  std::vector<std::string> cells;
  for (const char* key : {"seconds", "cpu_seconds"}) {
    const bool both = turns.peer && &side != &*turns.peer;
    cells.push_back(both ? formatted("%.1f", *turns.ratio(side, key)) : "");
  }
  return cells;
}

Turns take_turns(
    const TurnOptions& options, const std::vector<std::string>& argv,
    const PeerScript& script) {
  setenv("OMP_NUM_THREADS", "1", 1);  // one thread per rank on all sides
  Turns turns{.pytorch = "not found; --python names one that can import torch"};
  std::optional<PythonPeer> peer;
  if (const auto python = find_python(options.python); !python.empty()) {
    peer.emplace(python, script.text, script.arguments, by_hand(script));
    turns.pytorch = ordered_json::parse(peer->receive())["torch"];
    turns.peer = Side{"PyTorch"};
  }
  for (const std::string& engine : options.engines) {
    turns.engines.push_back({engine});
  }
  Progress progress(
      "measuring", static_cast<uint64_t>(options.rounds), false, "rounds");
  for (int round = 0; round < options.rounds; ++round) {
    for (Side& side : turns.engines) {
      run_engine(options, argv, side, turns);
    }
    if (peer) {
      peer->send("round");
      turns.peer->rounds.push_back(ordered_json::parse(peer->receive()));
    }
    progress.advance();
  }
  std::erase_if(
      turns.engines, [](const Side& side) { return side.rounds.empty(); });
  return turns;
}

int run_worker(
    const TurnOptions& options, const std::function<ordered_json()>& measure) {
  const ordered_json answer = measure_as_rank(measure);
  if (!answer.is_null()) {
    std::ofstream(options.worker) << answer.dump() << "\n";
  }
  return 0;
}

double over_ranks(double mine, ReduceOp op) {
  const at::Tensor value = at::full({1}, mine, at::kDouble);
  init().communicator().all_reduce(value, op);
  return value.item<double>();
}

RankSeconds time_on_ranks(const std::function<void()>& body) {
  const World world = init();
  world.communicator().barrier();
  const std::clock_t before = std::clock();
  const double clock = seconds_of([&] {
    body();
    world.communicator().barrier();
  });
  const double cpu =
      static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  // A process counts all of its ranks.
  return {
      over_ranks(clock, ReduceOp::kMax),
      over_ranks(
          cpu, world.engine() == "threads" ? ReduceOp::kMax : ReduceOp::kSum)};
}

ordered_json json_of(const Turns& turns) {
  ordered_json engines = ordered_json::object();
  for (const Side& side : turns.engines) {
    engines[side.name] = side.rounds;
  }
  ordered_json json = {
      {"torch", turns.pytorch},
      {"left_out", turns.absent},
      {"engines", engines}};
  if (turns.peer) {
    json["pytorch"] = turns.peer->rounds;
  }
  return json;
}

std::string absence_text(const Turns& turns) {
  std::string text;
  for (const auto& [engine, why] : turns.absent) {
    text += engine + " was left out: " + why + "\n";
  }
  return text;
}

}  // namespace tessera::cli
