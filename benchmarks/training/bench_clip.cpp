// tessera bench clip: clip_grad_norm of many small gradients on one mesh, on
// every engine, in turns with PyTorch's clip_grad_norm_ of DTensors.
#include <tessera/comm/device_mesh.h>
#include <tessera/parallel/clip_grad_norm.h>
#include <tessera/tensor/dtensor.h>
#include <torch/torch.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <cmath>
#include <memory>

#include "benchmarks/bench.h"
#include "cli/command.h"
#include "cli/text/terminal.h"
#include "cli/text/text_table.h"
#include "clip_pytorch.h"
#include "turns.h"

namespace tessera::cli {
namespace {

using nlohmann::ordered_json;

constexpr double kLeastRatio = 5;
constexpr double kMostDifference = 1e-4;  // of a norm, or of a sum
constexpr double kMaxNorm = 0.5;
struct ClipBenchOptions {
  TurnOptions turns;
  int64_t tensors = 200;
  int64_t rows = 64;
  int64_t columns = 64;
  int calls = 50;  // in a round
};

// The values that PyTorch's side clips, too.
at::Tensor gradient(const ClipBenchOptions& options, int64_t number) {
  return at::arange(options.rows * options.columns, at::kDouble)
      .mul(0.7390851)
      .add(static_cast<double>(number))
      .sin()
      .reshape({options.rows, options.columns})
      .to(at::kFloat);
}

std::vector<at::Tensor> make_parameters(
    const ClipBenchOptions& options, const DeviceMesh& mesh) {
  std::vector<at::Tensor> all;
  for (int64_t i = 0; i < options.tensors; ++i) {
    const at::Tensor cut = distribute_tensor(
        gradient(options, i), mesh, {Shard(0)},
        {.src_data_rank = std::nullopt});
    all.push_back(at::zeros_like(cut).requires_grad_());
    all.back().mutable_grad() = cut;
  }
  return all;
}

double sum_of_magnitudes(const std::vector<at::Tensor>& parameters) {
  double sum = 0;
  for (const at::Tensor& p : parameters) {
    sum += full_tensor(p.grad()).abs().to(at::kDouble).sum().item<double>();
  }
  return sum;
}

// On one rank. After the first call the norm is about kMaxNorm, and each
// further one still scales.
ordered_json measure_rank(const ClipBenchOptions& options) {
  const DeviceMesh mesh =
      init_device_mesh(at::kCPU, {init().communicator().size()});
  const auto parameters = make_parameters(options, mesh);
  const double norm = clip_grad_norm(parameters, kMaxNorm).item<double>();
  const RankSeconds took = time_on_ranks([&] {
    for (int i = 0; i < options.calls; ++i) {
      clip_grad_norm(parameters, kMaxNorm);
    }
  });
  return {
      {"seconds", took.clock / options.calls},
      {"cpu_seconds", took.cpu / options.calls},
      {"norm", norm},
      {"sum", sum_of_magnitudes(parameters)}};
}

ordered_json measure(const ClipBenchOptions& options) {
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

double largest_difference(const Turns& turns) {
  double largest = 0;
  for (const Side& side : turns.engines) {
    for (const char* key : {"norm", "sum"}) {
      const double want =
          (turns.peer ? *turns.peer : turns.engines[0]).median_of(key);
      for (const double got : side.numbers(key)) {
        const double part = std::abs(got - want) / std::abs(want);
        largest = std::isnan(part) ? INFINITY : std::max(largest, part);
      }
    }
  }
  return largest;
}

std::vector<Target> targets_of(const Turns& turns) {
  std::vector<Target> targets;
  for (const Side& side : turns.engines) {
    const auto ratio = turns.ratio(side, "seconds");
    if (ratio && side.name != "mpi") {  // whose ranks poll
      targets.push_back(
          {side.name + " " + formatted("%.1f", *ratio) + " times, below " +
               formatted("%.0f", kLeastRatio),
           *ratio >= kLeastRatio});
    }
  }
  return targets;
}

void print_report(const ClipBenchOptions& options, const Turns& turns) {
  TextTable table({"", "us per call", "CPU us", "PyTorch / it", "of CPU"});
  const auto add = [&](const Side& side) {
    std::vector<std::string> cells{
        side.name, formatted("%.0f", 1e6 * side.median_of("seconds")),
        formatted("%.0f", 1e6 * side.median_of("cpu_seconds"))};
    for (const std::string& cell : ratio_cells(turns, side)) {
      cells.push_back(cell);
    }
    table.add(std::move(cells));
  };
  for (const Side& side : turns.engines) {
    add(side);
  }
  if (turns.peer) {
    add(*turns.peer);
  }
  const Terminal terminal = detect_terminal(STDOUT_FILENO, false);
  print(wrapped(
      std::to_string(options.tensors) + " gradients f32[" +
          std::to_string(options.rows) + ", " +
          std::to_string(options.columns) + "] S(0) on " +
          counted(options.turns.ranks, "rank") + ", each with one thread; " +
          counted(options.turns.rounds, "round") + " of " +
          counted(options.calls, "call") +
          ", medians; PyTorch DTensor over Gloo processes: " + turns.pytorch +
          "\n" + absence_text(turns) + "\n" + table.draw(terminal) + "\n" +
          "largest difference of norms and clipped gradients: " +
          formatted("%.1e", largest_difference(turns)) + " (" +
          formatted("%.0e", kMostDifference) + " allowed)\n" +
          targets_text(targets_of(turns)),
      terminal));
}

int run_clip(const ClipBenchOptions& options) {
  if (!options.turns.worker.empty()) {
    return run_worker(options.turns, [&] { return measure(options); });
  }
  const std::vector<std::string> sizes{
      std::to_string(options.turns.ranks), std::to_string(options.tensors),
      std::to_string(options.rows), std::to_string(options.columns),
      std::to_string(options.calls)};
  const Turns turns = take_turns(
      options.turns,
      {"bench", "clip", "--tensors", sizes[1], "--rows", sizes[2], "--columns",
       sizes[3], "--calls", sizes[4]},
      {clip_pytorch, sizes, "benchmarks/clip_pytorch.py"});
  if (options.turns.json) {
    ordered_json json = json_of(turns);
    json["largest_difference"] = largest_difference(turns);
    json["missed"] = missed(targets_of(turns));
    print(json.dump(2) + "\n");
  } else {
    print_report(options, turns);
  }
  // A comparison of different numbers is worth nothing.
  return largest_difference(turns) <= kMostDifference ? 0 : kExitFailure;
}

}  // namespace

void add_bench_clip(CLI::App& bench, int& exit_code) {
  CLI::App* command = bench.add_subcommand(
      "clip", "clip_grad_norm of many gradients, beside PyTorch's DTensor");
  const auto options = std::make_shared<ClipBenchOptions>();
  add_turn_options(*command, options->turns);
  command->add_option("--tensors", options->tensors, "200 unless told")
      ->check(CLI::Range(1, 100000));
  command->add_option("--rows", options->rows, "of a gradient, 64")
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--columns", options->columns, "of a gradient, 64")
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--calls", options->calls, "in a round, 50")
      ->check(CLI::Range(1, 100000));
  command->callback([options, &exit_code] { exit_code = run_clip(*options); });
}

}  // namespace tessera::cli
