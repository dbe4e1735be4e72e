// One program under every launcher: alone, on ranks that are threads, on
// processes, under mpirun. Nothing in it depends on which one it is, and all
// ranks together compute what one rank computes alone.
//
//   build/bin/05_every_launcher
//   build/bin/tessera run -n 4 -- build/bin/05_every_launcher
//   build/bin/tessera run -n 4 --engine gloo -- build/bin/05_every_launcher
//   build/bin/tessera run -n 4 --engine mpi -- build/bin/05_every_launcher
//   mpirun -n 4 build/bin/05_every_launcher
//
// Trains an MLP. Prints a line per rank, what it holds and the sum of that, and
// a checksum over the whole model: the same for any launcher and rank count.
#include <iomanip>
#include <iostream>
#include <sstream>
#include <string>

#include <tessera/tessera.h>
#include <torch/torch.h>

#include "print_in_order.h"

namespace {

using namespace tessera;

std::string number(const at::Tensor& t) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(9) << t.item<double>();
  return text.str();
}

// On an even number of ranks two of them share a layer, the others data.
DeviceMesh make_mesh() {
  const int64_t tp = world_size() % 2 == 0 ? 2 : 1;
  return init_device_mesh(at::kCPU, {world_size() / tp, tp}, {"dp", "tp"});
}

torch::nn::Sequential make_model() {
  const ReplicatedRandom equal;
  torch::nn::Sequential model(
      torch::nn::Linear(8, 20), torch::nn::ReLU(), torch::nn::Linear(20, 3));
  model->to(at::kDouble);
  return model;
}

void body() {
  manual_seed(7);  // on all ranks: random numbers do not depend on their count
  const DeviceMesh mesh = make_mesh();
  torch::nn::Sequential model = make_model();
  parallelize_module(
      model, mesh, {{"0", ColwiseParallel()}, {"2", RowwiseParallel()}});
  torch::optim::AdamW optimizer(model->parameters(), 0.01);
  DataParallel gradients(*model, mesh);

  const Placements by_rows{Shard(0), Replicate()};
  const at::Tensor x = randn({24, 8}, mesh, by_rows, at::kDouble);
  const at::Tensor y = x.narrow(1, 0, 3).sin();
  for (int step = 0; step < 10; ++step) {
    optimizer.zero_grad();
    torch::mse_loss(model->forward(x), y).backward();
    gradients.reduce_gradients();
    optimizer.step();
  }

  if (rank() == 0) {
    std::cout << world_size() << " ranks, engine " << init().engine() << '\n';
  }
  const at::Tensor weight = model->parameters()[0].detach();
  print_in_order(c10::str(
      "rank ", rank(), " holds ", to_local(weight).sizes(), " of ",
      to_string(spec(weight)), ", sum ", number(to_local(weight).sum()), '\n'));

  at::Tensor checksum = at::zeros({}, at::kDouble);
  for (const at::Tensor& parameter : model->parameters()) {
    checksum += full_tensor(parameter.detach().square().sum());
  }
  if (rank() == 0) {
    std::cout << "checksum " << number(checksum) << '\n';
  }
}

}  // namespace

int main() {
  tessera::run(body);
}
