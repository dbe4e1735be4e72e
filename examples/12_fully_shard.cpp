// A GPT of which each rank keeps a part of every parameter, gradient and
// optimizer state; its class stays as it is. Groups of parameters are gathered
// where the forward uses them, and reduced when their backward is over.
//
//   build/bin/tessera run -n 2 -- build/bin/12_fully_shard
//   mpirun -n 4 build/bin/12_fully_shard
//
// Prints the losses beside those of the plain model, what this rank keeps, and
// what fully_shard did in the last step.
#include <cmath>
#include <iostream>
#include <vector>

#include <tessera/tessera.h>
#include <torch/torch.h>

#include "gpt.h"

namespace {

using namespace tessera;

constexpr gpt::Sizes kSizes = {.layers = 3};
constexpr int kSteps = 10;

gpt::Gpt make_gpt() {
  manual_seed(1);
  const ReplicatedRandom equal;
  gpt::Gpt model(kSizes);
  model->to(at::kDouble);
  return model;
}

at::Tensor indices(int64_t step) {
  return at::arange(4 * kSizes.length, at::kLong)
      .mul(7)
      .add(step)
      .remainder(kSizes.vocabulary)
      .view({4, kSizes.length});
}

// `place` cuts a batch.
template <class Place>
std::vector<double> train(gpt::Gpt& model, const Place& place) {
  torch::optim::AdamW optimizer(model->parameters(), 1e-2);
  std::vector<double> losses;
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    const at::Tensor logits = model(place(indices(step)));
    const at::Tensor loss = torch::nn::functional::cross_entropy(
        logits.flatten(0, 1), place(indices(step + 1)).flatten());
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

void body() {
  gpt::Gpt plain = make_gpt();
  const auto wanted = train(plain, [](const at::Tensor& t) { return t; });

  const auto mesh = init_device_mesh(at::kCPU, {world_size()}, {"dp"});
  gpt::Gpt model = make_gpt();
  const FullyShard sharded =
      fully_shard(*model, mesh, {.groups = {"blocks.*"}});
  const auto losses = train(model, [&](const at::Tensor& t) {
    return distribute_tensor(t, mesh, {Shard(0)});
  });

  bool equal = true;
  for (size_t i = 0; i < losses.size(); ++i) {
    equal = equal && std::abs(losses[i] - wanted[i]) < 1e-10;
  }
  if (rank() == 0) {
    std::cout << "loss " << losses.front() << " to " << losses.back()
              << (equal ? ", equal to the plain run\n" : ", other losses\n")
              << sharded.report() << std::endl;
  }
}

}  // namespace

int main() {
  tessera::run(body);
}
