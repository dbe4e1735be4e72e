// tessera bench recompute: blocks whose activations are computed again, beside
// a recomputation by hand and torch.utils.checkpoint; one process, one thread.
#include <tessera/parallel/activation_checkpoint.h>
#include <torch/torch.h>
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <cmath>
#include <ctime>
#include <map>
#include <memory>
#include <optional>

#include "benchmarks/bench.h"
#include "benchmarks/python_peer.h"
#include "cli/command.h"
#include "cli/text/progress.h"
#include "cli/text/terminal.h"
#include "cli/text/text_table.h"
#include "held_bytes.h"
#include "recompute_pytorch.h"

namespace tessera::cli {
namespace {

using nlohmann::ordered_json;

constexpr int kRepeats = 5;  // of a step in a round
struct RecomputeOptions {
  int64_t rows = 512;
  int64_t width = 256;
  int64_t blocks = 8;
  int rounds = 5;
  std::string python;
  bool json = false;
};

// The values that PyTorch's side computes with, too.
at::Tensor block_values(at::IntArrayRef shape, double shift) {
  return at::arange(c10::multiply_integers(shape), at::kDouble)
      .mul(0.7390851)
      .add(shift)
      .sin()
      .mul(0.05)
      .reshape(shape)
      .to(at::kFloat);
}

struct BlockImpl : torch::nn::Module {
  BlockImpl(int64_t width, double shift) {
    norm = register_module(
        "norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    up = register_module("up", torch::nn::Linear(width, 4 * width));
    down = register_module("down", torch::nn::Linear(4 * width, width));
    const torch::NoGradGuard guard;
    for (auto* layer : {&up, &down}) {
      for (const at::Tensor& p : (*layer)->parameters()) {
        p.copy_(block_values(p.sizes(), shift));
      }
    }
  }
  at::Tensor forward(const at::Tensor& x) {
    return x + down(torch::gelu(up(norm(x))));
  }
  torch::nn::LayerNorm norm = nullptr;
  torch::nn::Linear up = nullptr, down = nullptr;
};
using Blocks = std::vector<std::shared_ptr<BlockImpl>>;

double run_plain(const Blocks& blocks, const at::Tensor& x) {
  at::Tensor h = x;
  for (const auto& block : blocks) {
    h = block->forward(h);
  }
  const at::Tensor loss = h.square().mean();
  loss.backward();
  return loss.item<double>();
}

// As a program does it that knows its blocks: no graph but one block's.
double run_by_hand(const Blocks& blocks, const at::Tensor& x) {
  std::vector<at::Tensor> inputs{x.detach()};
  {
    const torch::NoGradGuard guard;
    for (const auto& block : blocks) {
      inputs.push_back(block->forward(inputs.back()));
    }
  }
  at::Tensor h = inputs.back().requires_grad_();
  inputs.pop_back();
  const at::Tensor loss = h.square().mean();
  loss.backward();
  at::Tensor gradient = h.grad();
  h.reset();
  for (size_t i = blocks.size(); i-- > 0;) {
    const at::Tensor input = inputs[i].detach().requires_grad_();
    inputs.pop_back();
    blocks[i]->forward(input).backward(gradient);
    gradient = input.grad();
  }
  x.mutable_grad() = gradient;
  return loss.item<double>();
}

double run_regions(const Blocks& blocks, const at::Tensor& x) {
  at::Tensor h = x;
  for (const auto& block : blocks) {
    h = activation_checkpoint(
        [block](at::Tensor t) { return block->forward(t); }, h);
  }
  const at::Tensor loss = h.square().mean();
  h.reset();
  loss.backward();
  return loss.item<double>();
}

// What recomputation has to hold at a time, beside parameters and their
// gradients: the inputs of all regions but the first, which is the caller's;
// what one block saves; and in the backward pass of `down`, where that is the
// most, the gradients that come in, go out and are added to the parameter's.
double formula_bytes(const RecomputeOptions& o) {
  const int64_t activation = o.rows * o.width;
  const int64_t inputs = (o.blocks - 1) * activation;
  const int64_t norm =
      activation + 2 * o.rows;  // its result, means, deviations
  const int64_t saved = norm + 4 * activation + 4 * activation;
  const int64_t gradients = activation + 4 * activation + 4 * o.width * o.width;
  return static_cast<double>(inputs + saved + gradients) * sizeof(float);
}

struct Figures {
  std::vector<double> seconds;  // of CPU, of each round
  double peak = 0;
  double loss = 0;
};
using ByWay = std::map<std::string, Figures>;
using WayToRun = double (*)(const Blocks&, const at::Tensor&);

const std::vector<std::pair<std::string, WayToRun>>& ways_to_run() {
  static const std::vector<std::pair<std::string, WayToRun>> all{
      {"plain", run_plain},
      {"by hand", run_by_hand},
      {"activation_checkpoint", run_regions}};
  return all;
}

template <class F>
double cpu_seconds_of(const F& body) {
  const std::clock_t begin = std::clock();
  body();
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

// Gradients of parameters stay where they are, so that all that a step makes is
// counted alike. Ways take turns, repeat by repeat.
void add_round(const Blocks& blocks, const at::Tensor& x, ByWay& ours) {
  const auto step = [&](WayToRun run) {
    x.mutable_grad() = at::Tensor();
    for (const auto& block : blocks) {
      block->zero_grad(/*set_to_none=*/false);
    }
    return run(blocks, x);
  };
  for (const auto& [name, run] : ways_to_run()) {
    ours[name].loss = step(run);
    ours[name].peak =
        static_cast<double>(HeldBytes::peak_of([&, &run = run] { step(run); }));
  }
  std::map<std::string, std::vector<double>> seconds;
  for (int i = 0; i < kRepeats; ++i) {
    for (const auto& [name, run] : ways_to_run()) {
      seconds[name].push_back(cpu_seconds_of([&, &run = run] { step(run); }));
    }
  }
  for (const auto& [name, all] : seconds) {
    ours[name].seconds.push_back(median(all));
  }
}

void add_peers_round(PythonPeer& peer, ByWay& theirs) {
  peer.send("round");
  const auto answer = ordered_json::parse(peer.receive());
  for (const auto& [name, figures] : answer.items()) {
    theirs[name].seconds.push_back(figures["seconds"].get<double>());
    theirs[name].peak = figures["peak"].get<double>();
    theirs[name].loss = figures["loss"].get<double>();
  }
}

// Figures count only where everybody computed the same.
void check_losses(const ByWay& ours, const ByWay& theirs) {
  const double want = ours.at("plain").loss;
  for (const ByWay* side : {&ours, &theirs}) {
    for (const auto& [name, figures] : *side) {
      if (std::abs(figures.loss - want) > 1e-4 * std::abs(want)) {
        throw std::runtime_error(
            name + " has another loss: " + formatted("%.8g", figures.loss) +
            " instead of " + formatted("%.8g", want));
      }
    }
  }
}

std::vector<Target> targets_of(
    const RecomputeOptions& options, const ByWay& ours) {
  const Figures& mine = ours.at("activation_checkpoint");
  const double time = median_ratio(mine.seconds, ours.at("by hand").seconds);
  const double peak = mine.peak / formula_bytes(options);
  return {
      {"time " + formatted("%.2f", time) + " x by hand, above 1.10",
       time <= 1.10},
      {"peak " + formatted("%.2f", peak) + " x the formula, above 1.05",
       peak <= 1.05}};
}

void add_rows(TextTable& table, const ByWay& side, const std::string& who) {
  for (const auto& [name, figures] : side) {
    table.add(
        {who + name, formatted("%.1f", 1e3 * median(figures.seconds)),
         formatted("%.2f", figures.peak / (1 << 20))});
  }
}

ordered_json json_of(const ByWay& side) {
  ordered_json json = ordered_json::object();
  for (const auto& [name, figures] : side) {
    json[name] = {
        {"seconds", figures.seconds},
        {"peak", figures.peak},
        {"loss", figures.loss}};
  }
  return json;
}

int run_recompute(const RecomputeOptions& options) {
  at::set_num_threads(1);
  Blocks blocks;
  for (int64_t i = 0; i < options.blocks; ++i) {
    blocks.push_back(std::make_shared<BlockImpl>(
        options.width, 0.1 * static_cast<double>(i)));
  }
  const at::Tensor x =
      block_values({options.rows, options.width}, 0.5).mul(20).requires_grad_();
  std::string torch = "not found; --python names one that can import torch";
  std::optional<PythonPeer> peer;
  if (const auto python = find_python(options.python); !python.empty()) {
    peer.emplace(
        python, recompute_pytorch,
        std::vector<std::string>{
            std::to_string(options.rows), std::to_string(options.width),
            std::to_string(options.blocks), std::to_string(kRepeats)},
        "benchmarks/recompute_pytorch.py 512 256 8 5");
    torch = ordered_json::parse(peer->receive())["torch"].get<std::string>();
  }
  ByWay ours, theirs;
  Progress progress(
      "recompute", static_cast<uint64_t>(options.rounds), false, "rounds");
  for (int round = 0; round < options.rounds; ++round) {
    add_round(blocks, x, ours);
    if (peer) {
      add_peers_round(*peer, theirs);
    }
    progress.advance();
  }
  check_losses(ours, theirs);
  const std::vector<Target> targets = targets_of(options, ours);
  const double formula = formula_bytes(options);
  if (options.json) {
    const ordered_json json = {
        {"rows", options.rows},     {"width", options.width},
        {"blocks", options.blocks}, {"pytorch", torch},
        {"formula_bytes", formula}, {"tessera", json_of(ours)},
        {"torch", json_of(theirs)}, {"missed", missed(targets)}};
    print(json.dump(2) + "\n");
  } else {
    TextTable table({"", "CPU ms", "peak MiB"});
    table.add({"formula", "", formatted("%.2f", formula / (1 << 20))});
    add_rows(table, ours, "");
    add_rows(table, theirs, "PyTorch, ");
    const Terminal terminal = detect_terminal(STDOUT_FILENO, false);
    print(wrapped(
        std::to_string(options.blocks) + " blocks, f32 [" +
            std::to_string(options.rows) + ", " +
            std::to_string(options.width) + "], " +
            std::to_string(options.rounds) +
            " rounds, medians; PyTorch: " + torch + "\n\n" +
            table.draw(terminal) + "\n" + targets_text(targets),
        terminal));
  }
  return 0;
}

}  // namespace

void add_bench_recompute(CLI::App& bench, int& exit_code) {
  CLI::App* recompute = bench.add_subcommand(
      "recompute", "activations computed again, beside torch.utils.checkpoint");
  const auto options = std::make_shared<RecomputeOptions>();
  recompute->add_option("--rows", options->rows, "rows of the batch, 512")
      ->check(CLI::Range(1, 1 << 20));
  recompute->add_option("--width", options->width, "256 unless told")
      ->check(CLI::Range(1, 1 << 14));
  recompute->add_option("--blocks", options->blocks, "8 unless told")
      ->check(CLI::Range(1, 1000));
  recompute->add_option("--rounds", options->rounds, "5 unless told")
      ->check(CLI::Range(1, 1000));
  recompute->add_option(
      "--python", options->python, "a Python that can import torch");
  recompute->add_flag("--json", options->json, "print JSON");
  recompute->callback(
      [options, &exit_code] { exit_code = run_recompute(*options); });
}

}  // namespace tessera::cli
