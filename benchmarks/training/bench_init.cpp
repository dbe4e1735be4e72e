// tessera bench init: a GPT that is made and sharded without ever being whole,
// on every engine, in turns with PyTorch: meta, fully_shard, to_empty and
// reset_parameters.
#include <tessera/comm/device_mesh.h>
#include <tessera/tensor/deferred_init.h>
#include <tessera/tensor/dtensor.h>
#include <tessera/tensor/random.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <memory>

#include "benchmarks/bench.h"
#include "cli/command.h"
#include "cli/text/terminal.h"
#include "cli/text/text_table.h"
#include "examples/gpt.h"
#include "init_pytorch.h"
#include "resident_bytes.h"
#include "turns.h"

namespace tessera::cli {
namespace {

using nlohmann::ordered_json;

constexpr double kLeastRatio = 2;
constexpr uint64_t kSeed = 11;

struct InitOptions {
  TurnOptions turns{.rounds = 3};
  int64_t width = 1024;
  int64_t layers = 19;
  int64_t vocabulary = 16384;

  gpt::Sizes sizes() const {
    return {
        .vocabulary = vocabulary,
        .length = 512,
        .width = width,
        .heads = 16,
        .hidden = 4 * width,
        .layers = layers};
  }
};

gpt::Gpt make_sharded(const gpt::Sizes& sizes, const DeviceMesh& mesh) {
  gpt::Gpt model = [&] {
    const DeferredInit later;
    return gpt::Gpt(sizes);
  }();
  for (const at::Tensor& p : model->parameters()) {
    make_dtensor_(p, mesh, {Shard(0)});
  }
  return model;
}

// Whether this rank's shards are those of the model that one rank makes whole.
bool equals_whole(
    const gpt::Gpt& model, const gpt::Sizes& sizes, const DeviceMesh& mesh) {
  manual_seed(kSeed);
  const ReplicatedRandom equal;
  const gpt::Gpt whole(sizes);
  const auto mine = model->parameters();
  const auto all = whole->parameters();
  bool is_equal = true;
  for (size_t i = 0; i < mine.size(); ++i) {
    const at::Tensor cut = distribute_tensor(
        all[i].detach(), mesh, {Shard(0)}, {.src_data_rank = std::nullopt});
    is_equal = is_equal && at::equal(to_local(mine[i].detach()), to_local(cut));
  }
  return is_equal;
}

// Whether rank 0 and the last rank hold the same values of a matrix.
bool ends_are_equal(const gpt::Gpt& model) {
  const at::Tensor matrix =
      model->named_parameters()["blocks.0.attention.q.weight"];
  const Communicator all = init().communicator();
  const at::Tensor mine = to_local(matrix.detach()).contiguous();
  const at::Tensor first = mine.clone();
  all.broadcast(first, 0);
  const at::Tensor flag = at::zeros({1}, at::kLong);
  flag.fill_(all.size() > 1 && at::equal(first, mine) ? 1 : 0);
  all.broadcast(flag, all.size() - 1);
  return flag.item<int64_t>() == 1;
}

int64_t bytes_of(const gpt::Gpt& model, bool is_local) {
  size_t bytes = 0;
  for (const at::Tensor& p : model->parameters()) {
    bytes += is_local ? to_local(p.detach()).nbytes()
                      : static_cast<size_t>(p.numel()) * p.element_size();
  }
  return static_cast<int64_t>(bytes);
}

// On one rank. Ranks that are threads share a process: each counts as a part
// of what it holds.
ordered_json measure_rank(const InitOptions& options) {
  const Communicator all = init().communicator();
  const DeviceMesh mesh = init_device_mesh(at::kCPU, {all.size()}, {"dp"});
  const bool shares_process = init().engine() == "threads";
  make_sharded({.width = 64, .heads = 4, .hidden = 256}, mesh);  // once
  manual_seed(kSeed);
  all.barrier();
  const ResidentBytes resident;
  gpt::Gpt model(nullptr);
  const RankSeconds took =
      time_on_ranks([&] { model = make_sharded(options.sizes(), mesh); });
  const double peak = static_cast<double>(resident.peak()) /
                      (shares_process ? static_cast<double>(all.size()) : 1);
  const bool equal = equals_whole(model, options.sizes(), mesh);
  const double held = static_cast<double>(bytes_of(model, true));
  return {
      {"seconds", took.clock},
      {"cpu_seconds", took.cpu},
      {"peak_bytes", over_ranks(peak, ReduceOp::kMax)},
      {"shard_bytes", over_ranks(held, ReduceOp::kMax)},
      {"model_bytes", bytes_of(model, false)},
      {"equals_one_rank", over_ranks(equal ? 1 : 0, ReduceOp::kMin) == 1},
      {"ranks_hold_the_same", ends_are_equal(model)}};
}

ordered_json measure(const InitOptions& options) {
  at::set_num_threads(1);
  ordered_json answer;
  run([&] {
    ordered_json mine = measure_rank(options);
    if (rank() == 0) {
      answer = std::move(mine);
    }
  });
  return answer;
}

bool is_right(const Side& side) {
  return std::all_of(
      side.rounds.begin(), side.rounds.end(), [](const ordered_json& round) {
        return round.at("equals_one_rank").get<bool>();
      });
}

std::vector<Target> targets_of(const Turns& turns) {
  std::vector<Target> targets;
  for (const Side& side : turns.engines) {
    targets.push_back(
        {side.name + ": other values than one rank's", is_right(side)});
    const auto ratio = turns.ratio(side, "seconds");
    if (ratio && side.name != "mpi") {  // whose ranks poll
      targets.push_back(
          {side.name + " " + formatted("%.2f", *ratio) + " times, below " +
               formatted("%.0f", kLeastRatio),
           *ratio >= kLeastRatio});
    }
  }
  return targets;
}

void add_row(TextTable& table, const Turns& turns, const Side& side) {
  const ordered_json& last = side.rounds.back();
  std::vector<std::string> cells{
      side.name,
      formatted("%.2f", side.median_of("seconds")),
      formatted("%.2f", side.median_of("cpu_seconds")),
      formatted("%.0f", side.median_of("peak_bytes") / (1 << 20)),
      formatted("%.0f", side.median_of("shard_bytes") / (1 << 20)),
      is_right(side) ? "yes" : "NO",
      last["ranks_hold_the_same"].get<bool>() ? "YES" : "no"};
  for (const std::string& cell : ratio_cells(turns, side)) {
    cells.push_back(cell);
  }
  table.add(std::move(cells));
}

void print_report(const InitOptions& options, const Turns& turns) {
  TextTable table(
      {"", "s", "CPU s", "peak MiB", "shards", "as one", "alike",
       "PyTorch / it", "CPU"});
  for (const Side& side : turns.engines) {
    add_row(table, turns, side);
  }
  if (turns.peer) {
    add_row(table, turns, *turns.peer);
  }
  double bytes = 0;
  for (const Side& side : turns.engines) {
    bytes = side.median_of("model_bytes");
  }
  const Terminal terminal = detect_terminal(STDOUT_FILENO, false);
  print(wrapped(
      "GPT of " + formatted("%.0f", bytes / (1 << 20)) + " MiB, f32, on " +
          counted(options.turns.ranks, "rank") + ", each with one thread; " +
          counted(options.turns.rounds, "round") +
          ", medians; PyTorch over Gloo processes: " + turns.pytorch +
          "; as one: values are those of one rank, alike: ranks hold the "
          "same\n" +
          absence_text(turns) + "\n" + table.draw(terminal) + "\n" +
          targets_text(targets_of(turns)),
      terminal));
}

std::vector<std::string> arguments_of(const InitOptions& options) {
  return {
      std::to_string(options.width), std::to_string(options.layers),
      std::to_string(options.vocabulary)};
}

int run_init(const InitOptions& options) {
  if (!options.turns.worker.empty()) {
    return run_worker(options.turns, [&] { return measure(options); });
  }
  std::vector<std::string> script = arguments_of(options);
  script.insert(script.begin(), std::to_string(options.turns.ranks));
  const Turns turns = take_turns(
      options.turns,
      {"bench", "init", "--width", script[1], "--layers", script[2],
       "--vocabulary", script[3]},
      {init_pytorch, script, "benchmarks/init_pytorch.py"});
  bool right = true;
  for (const Side& side : turns.engines) {
    right = right && is_right(side);
  }
  if (options.turns.json) {
    ordered_json json = json_of(turns);
    json["missed"] = missed(targets_of(turns));
    print(json.dump(2) + "\n");
  } else {
    print_report(options, turns);
  }
  return right ? 0 : kExitFailure;  // other values are no faster ones
}

}  // namespace

void add_bench_init(CLI::App& bench, int& exit_code) {
  CLI::App* command = bench.add_subcommand(
      "init", "A GPT made and sharded by DeferredInit, beside PyTorch's meta");
  const auto options = std::make_shared<InitOptions>();
  add_turn_options(*command, options->turns);
  command->add_option("--width", options->width, "of the GPT, 1024")
      ->check(CLI::Range(16, 1 << 14));
  command->add_option("--layers", options->layers, "19: 1 GiB in all")
      ->check(CLI::Range(1, 1000));
  command->add_option("--vocabulary", options->vocabulary, "16384 unless told")
      ->check(CLI::Range(2, 1 << 20));
  command->callback([options, &exit_code] { exit_code = run_init(*options); });
}

}  // namespace tessera::cli
