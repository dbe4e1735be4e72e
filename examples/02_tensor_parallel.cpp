// Tensor parallelism for a module of one's own: a gated MLP whose weights are
// tensor members, multiplied by hand in forward(). Its class knows nothing of
// ranks and stays as it is; a plan says how each weight is cut and used.
//
//   build/bin/tessera run -n 2 -- build/bin/02_tensor_parallel
//   mpirun -n 4 build/bin/02_tensor_parallel
//
// Prints where the weights lie, what one step communicates, and whether the
// losses of 20 steps are those of the same module without ranks, to 1e-10.
#include <cmath>
#include <iostream>
#include <string>
#include <vector>

#include <tessera/tessera.h>
#include <torch/torch.h>

namespace {

using namespace tessera;

constexpr int64_t kWidth = 8;
constexpr int64_t kHidden = 24;

struct GatedMlp : torch::nn::Module {
  GatedMlp() {
    gate = register_parameter("gate", torch::randn({kWidth, kHidden}));
    up = register_parameter("up", torch::randn({kWidth, kHidden}));
    scale = register_parameter("scale", torch::ones({kHidden}));
    down = register_module("down", torch::nn::Linear(kHidden, kWidth));
  }
  at::Tensor forward(const at::Tensor& x) {
    return down(torch::silu(x.matmul(gate)) * x.matmul(up) * scale);
  }
  at::Tensor gate, up, scale;
  torch::nn::Linear down = nullptr;
};

// The same values on every rank, and each time that it is called.
std::shared_ptr<GatedMlp> make_mlp() {
  manual_seed(1);
  const ReplicatedRandom equal;
  auto mlp = std::make_shared<GatedMlp>();
  mlp->to(at::kDouble);
  return mlp;
}

// Columns of `gate` and `up`, elements of `scale` and rows of `down` belong
// together: hidden unit i is on one rank from its gate to its addend.
ParallelPlan plan() {
  const ParameterParallel columns{
      .placement = Shard(1),
      .input_layouts = Replicate(),
      .output_layouts = Shard(-1)};
  return {
      {"gate", columns},
      {"up", columns},
      {"scale", ParameterParallel{.placement = Shard(0)}},
      {"down", RowwiseParallel()}};
}

// Trains a module, on ranks or not: nothing here differs.
std::vector<double> train(
    GatedMlp& mlp, const at::Tensor& x, const at::Tensor& y) {
  torch::optim::AdamW optimizer(mlp.parameters(), 0.01);
  std::vector<double> losses;
  for (int step = 0; step < 20; ++step) {
    optimizer.zero_grad();
    const at::Tensor loss = torch::mse_loss(mlp.forward(x), y);
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

void print(const std::string& line) {
  std::cout << (rank() == 0 ? line + "\n" : "") << std::flush;
}

// Prints what a forward and a backward pass send. The input wants a gradient,
// as it does between two layers.
void show_communication(GatedMlp& mlp, const at::Tensor& x) {
  const CommLog log;
  mlp.forward(x.detach().requires_grad_()).sum().backward();
  for (const CommLogEntry& entry : log.entries()) {
    print((entry.in_backward ? "backward: " : "forward: ") + entry.line());
  }
}

void body() {
  const auto mesh = init_device_mesh(at::kCPU, {world_size()}, {"tp"});
  const auto plain = make_mlp();
  const auto mlp = make_mlp();
  parallelize_module(mlp, mesh, plan());
  for (const auto& parameter : mlp->named_parameters()) {
    print(parameter.key() + ": " + to_string(spec(parameter.value())));
  }

  const at::Tensor x =
      at::linspace(-1, 1, 5 * kWidth, at::kDouble).view({5, kWidth});
  const at::Tensor on_mesh = distribute_tensor(x, mesh, {Replicate()});
  show_communication(*mlp, on_mesh);

  const auto expected = train(*plain, x, x.cos());
  const auto losses = train(*mlp, on_mesh, on_mesh.cos());
  bool equal = true;
  for (size_t i = 0; i < losses.size(); ++i) {
    equal = equal && std::abs(losses[i] - expected[i]) < 1e-10;
  }
  print(c10::str("loss ", losses.front(), " to ", losses.back()));
  print(equal ? "equal to the plain run" : "differs from the plain run");
}

}  // namespace

int main() {
  tessera::run(body);
}
