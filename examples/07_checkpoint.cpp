// A training that stops and goes on elsewhere: saved on a mesh of one dim,
// loaded on one of two, where every weight lies otherwise. Prints what the
// checkpoint holds, and whether the losses are those of a run without a stop.
//
//   build/bin/tessera run -n 4 -- build/bin/07_checkpoint
//   mpirun -n 4 build/bin/07_checkpoint
#include <cmath>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <tessera/tessera.h>
#include <torch/torch.h>

namespace {

using namespace tessera;

struct Net : torch::nn::Module {
  Net()
      : up(register_module("up", torch::nn::Linear(8, 24))),
        down(register_module("down", torch::nn::Linear(24, 4))) {
    to(at::kDouble);
  }
  at::Tensor forward(const at::Tensor& x) { return down(torch::tanh(up(x))); }
  torch::nn::Linear up, down;
};

// A net, its optimizer and its batch on a mesh; weights are cut along its last
// dim, the batch along its first.
struct Training {
  Training(const DeviceMesh& mesh, int64_t dim) {
    manual_seed(1);
    const ReplicatedRandom equal;
    net = std::make_shared<Net>();
    Placements weights(static_cast<size_t>(mesh.ndim()), Replicate());
    Placements batch = weights;
    weights.back() = Shard(dim);
    batch.front() = Shard(0);
    for (const at::Tensor& parameter : net->parameters()) {
      make_dtensor_(
          parameter, mesh,
          parameter.dim() == 2 ? weights : Placements(weights.size()));
    }
    x = distribute_tensor(
        at::linspace(-1, 1, 128, at::kDouble).view({16, 8}), mesh, batch);
    optimizer = std::make_unique<torch::optim::AdamW>(net->parameters(), 0.02);
  }

  std::vector<double> run(int steps) {
    std::vector<double> losses;
    for (int step = 0; step < steps; ++step) {
      optimizer->zero_grad();
      const at::Tensor loss = (net->forward(x) - 1).pow(2).mean();
      loss.backward();
      optimizer->step();
      losses.push_back(loss.item<double>());
    }
    return losses;
  }

  checkpoint::StateDict state() const {
    return checkpoint::state_dict(*net, *optimizer);
  }

  std::shared_ptr<Net> net;
  std::unique_ptr<torch::optim::AdamW> optimizer;
  at::Tensor x;
};

void print(const std::string& line) {
  std::cout << (rank() == 0 ? line + "\n" : "") << std::flush;
}

void body() {
  const std::string path = std::filesystem::temp_directory_path() /
                           ("tessera_example_" + std::to_string(world_size()));
  const int64_t n = world_size();
  const auto line = init_device_mesh(at::kCPU, {n}, {"tp"});
  Training first(line, 0);
  first.run(10);
  checkpoint::save(
      {{"training", first.state()}, {"step", 10}}, path, {.overwrite = true});
  const std::vector<double> expected = first.run(10);

  const int64_t dp = n % 2 == 0 ? 2 : 1;
  const auto grid = init_device_mesh(at::kCPU, {dp, n / dp}, {"dp", "tp"});
  Training second(grid, 1);
  checkpoint::StateDict state{{"training", second.state()}, {"step", 0}};
  checkpoint::load(state, path);
  const auto entries = checkpoint::list(path);
  print(c10::str(
      entries.size(), " names, step ", state.at("step").to_int(), ", ",
      to_string(spec(second.net->up->weight))));
  const std::vector<double> losses = second.run(10);

  bool equal = true;
  for (size_t i = 0; i < losses.size(); ++i) {
    equal = equal && std::abs(losses[i] - expected[i]) < 1e-12;
  }
  print(c10::str("loss ", losses.front(), " to ", losses.back()));
  print(equal ? "equal to the run without a stop" : "differs");
  init().communicator().barrier();
  if (rank() == 0) {
    std::filesystem::remove_all(path);
  }
}

}  // namespace

int main() {
  tessera::run(body);
}
