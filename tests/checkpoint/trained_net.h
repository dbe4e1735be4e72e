// A small model on a mesh, and steps of its training.
#pragma once

#include <tessera/checkpoint/checkpoint.h>
#include <torch/torch.h>

#include <vector>

#include <harness/sharded_test.h>

namespace tessera::testing {

struct TrainedNet : torch::nn::Module {
  TrainedNet()
      : first(register_module("first", torch::nn::Linear(6, 10))),
        second(register_module("second", torch::nn::Linear(10, 3))) {
    to(at::kDouble);
    int64_t offset = 0;
    const at::NoGradGuard no_grad;
    for (at::Tensor& p : parameters()) {
      p.copy_(distinct(p.sizes()).sub(0.1 * static_cast<double>(offset++)));
    }
  }
  at::Tensor forward(const at::Tensor& x) {
    return second(torch::tanh(first(x)));
  }
  torch::nn::Linear first, second;
};

inline void shard_net(TrainedNet& net, const DeviceMesh& mesh, int64_t dim) {
  for (const at::Tensor& p : net.parameters()) {
    make_dtensor_(p, mesh, {Shard(p.dim() == 1 ? 0 : dim)});
  }
}

inline void train_net(
    TrainedNet& net, torch::optim::Optimizer& optimizer, const DeviceMesh& mesh,
    int from, int to) {
  for (int step = from; step < to; ++step) {
    const at::Tensor x = distribute_tensor(
        distinct({4, 6}).mul(0.1 * (step + 1)), mesh, {Replicate()});
    optimizer.step([&] {
      optimizer.zero_grad();
      const at::Tensor loss = net.forward(x).pow(2).mean();
      loss.backward();
      return loss;
    });
  }
}

inline std::vector<at::Tensor> values_of(const TrainedNet& net) {
  std::vector<at::Tensor> values;
  for (const at::Tensor& p : net.parameters()) {
    values.push_back(full_tensor(p.detach()).clone());
  }
  return values;
}

}  // namespace tessera::testing
