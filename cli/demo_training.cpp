// The demo's training: a module as a user would write it, the data, and the two
// runs that are compared.
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/adamw.h>
#include <torch/types.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tessera/comm/device_mesh.h>
#include <tessera/layout/notation.h>
#include <tessera/parallel/distribute_module.h>
#include <tessera/tensor/dtensor.h>

#include "torch_part.h"

namespace tessera::cli {
namespace {

// The first run of an operator without a sharding rule says so once, in the
// middle of the progress bar.
struct NoWarnings final : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

constexpr int64_t kPointsPerArm = 256;
constexpr double kLearningRate = 3e-3;

/// A user's own module: a tensor member of its own beside ready-made layers.
struct SpiralNet : torch::nn::Module {
  SpiralNet()
      : hidden(torch::nn::Linear(48, 128)),
        norm(torch::nn::LayerNorm(torch::nn::LayerNormOptions({128}))),
        out(torch::nn::Linear(128, 1)) {
    frequencies = register_parameter("frequencies", torch::randn({2, 48}));
    register_module("hidden", hidden);
    register_module("norm", norm);
    register_module("out", out);
  }

  torch::Tensor forward(const torch::Tensor& points) {
    const torch::Tensor waves = torch::sin(torch::matmul(points, frequencies));
    return out(torch::gelu(norm(hidden(waves)))).squeeze(1);
  }

  torch::Tensor frequencies;
  torch::nn::Linear hidden;
  torch::nn::LayerNorm norm;
  torch::nn::Linear out;
};

struct Data {
  torch::Tensor points;  // [n, 2]
  torch::Tensor labels;  // [n], 0 or 1: which arm
};

/// Two spirals, one the mirror image of the other; no random numbers.
Data two_spirals(torch::ScalarType dtype) {
  std::vector<double> points, labels;
  for (int64_t i = 0; i < kPointsPerArm; ++i) {
    const double part = static_cast<double>(i) / kPointsPerArm;
    const double angle = 0.5 + 14 * part;
    for (const double arm : {0.0, 1.0}) {
      const double sign = arm == 0 ? 1 : -1;
      points.push_back(sign * (0.2 + 2 * part) * std::cos(angle));
      points.push_back(sign * (0.2 + 2 * part) * std::sin(angle));
      labels.push_back(arm);
    }
  }
  const auto f64 = torch::TensorOptions().dtype(torch::kFloat64);
  return {
      torch::tensor(points, f64).view({-1, 2}).to(dtype),
      torch::tensor(labels, f64).to(dtype)};
}

std::shared_ptr<SpiralNet> new_network(torch::ScalarType dtype) {
  auto network = std::make_shared<SpiralNet>();
  network->to(dtype);
  return network;
}

/// Trains and reports each step's loss. The same code for both runs: `forward`
/// calls the network, read_loss turns the loss into a number.
template <typename Forward, typename ReadLoss, typename Report>
void train(
    Forward& forward, SpiralNet& network, const Data& data, int steps,
    ReadLoss read_loss, Report report) {
  torch::optim::AdamW optimizer(
      network.parameters(), torch::optim::AdamWOptions(kLearningRate));
  for (int step = 1; step <= steps; ++step) {
    optimizer.zero_grad();
    const torch::Tensor loss = torch::binary_cross_entropy_with_logits(
        forward(data.points), data.labels);
    loss.backward();
    optimizer.step();
    report(step, read_loss(loss));
  }
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
      .count();
}

/// Copies the starting point into a fresh module.
void load_values(SpiralNet& network, const std::vector<torch::Tensor>& values) {
  const torch::NoGradGuard no_grad;
  const auto parameters = network.parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    parameters[i].copy_(values[i]);
  }
}

std::vector<torch::Tensor> copy_values(const SpiralNet& network) {
  std::vector<torch::Tensor> values;
  for (const torch::Tensor& parameter : network.parameters()) {
    values.push_back(parameter.detach().clone());
  }
  return values;
}

/// Shards the matrices of one sub-module by rows; the rest is replicated.
void shard_matrices(
    const std::string&, torch::nn::Module& module, const DeviceMesh& mesh) {
  for (const torch::Tensor& parameter : module.parameters(/*recurse=*/false)) {
    if (parameter.dim() == 2) {
      make_dtensor_(parameter, mesh, {Shard(0)});
    }
  }
}

/// Shards a batch along its first dim.
std::vector<torch::Tensor> shard_batch(
    std::vector<torch::Tensor> tensors, const DeviceMesh& mesh) {
  for (torch::Tensor& tensor : tensors) {
    tensor = distribute_tensor(tensor, mesh, {Shard(0)});
  }
  return tensors;
}

std::vector<DemoParameter> describe_parameters(const SpiralNet& network) {
  std::vector<DemoParameter> parameters;
  for (const auto& item : network.named_parameters()) {
    const torch::Tensor& value = item.value();
    parameters.push_back(
        {item.key(), shape_to_string(value.sizes().vec()),
         to_string(placements(value)),
         shape_to_string(to_local(value.detach()).sizes().vec())});
  }
  return parameters;
}

/// Trains on one rank of the world; rank 0 fills in the result.
void train_rank(
    const std::vector<torch::Tensor>& start, const Data& data,
    const DemoOptions& options, const DemoProgress& progress,
    DemoResult& result) {
  const DeviceMesh mesh = init_device_mesh(at::kCPU, {world_size()}, {"ranks"});
  auto network = new_network(data.points.scalar_type());
  load_values(*network, start);
  auto sharded = distribute_module(network, mesh, shard_matrices, shard_batch);
  const Data inputs{
      data.points, distribute_tensor(data.labels, mesh, {Shard(0)})};
  const bool reports = rank() == 0;
  if (reports) {
    result.mesh = to_string(mesh);
    result.parameters = describe_parameters(*network);
  }
  train(
      sharded, *network, inputs, options.steps,
      [](const torch::Tensor& loss) {
        return full_tensor(loss.detach()).item<double>();
      },
      [&](int step, double loss) {
        if (reports) {
          result.sharded_losses.push_back(loss);
          progress(true, step, loss);
        }
      });
}

/// Whether ranks are to be threads of this process, by its environment.
bool makes_threads() {
  const char* engine = std::getenv("TESSERA_ENGINE");
  return engine == nullptr ? std::getenv("TESSERA_NUM_RANKS") != nullptr
                           : std::string(engine) == "threads";
}

/// Runs `body` on the processes of the job where there are several, else on
/// `ranks` threads.
void on_ranks(int ranks, const std::function<void()>& body) {
  if (!makes_threads() && world_size() > 1) {
    run(body);
  } else {
    run_ranks(ranks, body);
  }
}

}  // namespace

LaunchedAs launched_as() {
  const char* threads = std::getenv("TESSERA_NUM_RANKS");
  if (threads != nullptr && makes_threads()) {
    return {.rank = 0, .ranks = std::atoi(threads)};
  }
  return {
      .rank = static_cast<int>(rank()),
      .ranks = static_cast<int>(world_size())};
}

DemoResult train_demo(
    const DemoOptions& options, const DemoProgress& progress) {
  const auto dtype = options.float32 ? torch::kFloat32 : torch::kFloat64;
  const Data data = two_spirals(dtype);
  // Ranks share the cores, so each has one thread; with as many for the plain
  // run, sums are split alike and the curves can agree to the last bit.
  at::set_num_threads(1);
  torch::manual_seed(0);
  auto plain = new_network(dtype);
  const std::vector<torch::Tensor> start = copy_values(*plain);
  DemoResult result;
  auto begin = std::chrono::steady_clock::now();
  const auto forward = [&](const torch::Tensor& points) {
    return plain->forward(points);
  };
  train(
      forward, *plain, data, options.steps,
      [](const torch::Tensor& loss) { return loss.item<double>(); },
      [&](int step, double loss) {
        result.plain_losses.push_back(loss);
        progress(false, step, loss);
      });
  result.plain_seconds = seconds_since(begin);
  begin = std::chrono::steady_clock::now();
  on_ranks(options.ranks, [&] {
    NoWarnings quiet;
    const c10::WarningUtils::WarningHandlerGuard guard(&quiet);
    train_rank(start, data, options, progress, result);
  });
  result.sharded_seconds = seconds_since(begin);
  return result;
}

}  // namespace tessera::cli
