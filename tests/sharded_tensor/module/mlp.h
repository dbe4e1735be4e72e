// A two-layer net of a user's own class, and what tests ask of it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <sharded_tensor/tensor/family_test.h>
#include <tessera/sharded_tensor/shard_module.h>

namespace tessera::testing {

/// Gives every parameter irregular values, the same on all ranks.
inline void set_values(torch::nn::Module& module) {
  const torch::NoGradGuard no_grad;
  module.to(device(), at::kDouble);
  double shift = 0.02;
  for (auto& p : module.parameters()) {
    p.copy_(distinct(p.sizes()).mul(0.3).add(shift));
    shift += 0.03;
  }
}

struct MlpImpl : torch::nn::Module {
  MlpImpl(int64_t in, int64_t hidden, int64_t out)
      : fc1(register_module("fc1", torch::nn::Linear(in, hidden))),
        fc2(register_module("fc2", torch::nn::Linear(hidden, out))) {
    set_values(*this);
  }
  at::Tensor forward(const at::Tensor& x) { return fc2(torch::gelu(fc1(x))); }
  torch::nn::Linear fc1, fc2;
};
TORCH_MODULE(Mlp);

/// The same as a Sequential.
inline torch::nn::Sequential sequential_mlp(
    int64_t in, int64_t hidden, int64_t out) {
  torch::nn::Sequential net(
      torch::nn::Linear(in, hidden), torch::nn::GELU(),
      torch::nn::Linear(hidden, out));
  set_values(*net);
  return net;
}

/// Returns the gradients of all parameters, whole and plain.
inline std::map<std::string, at::Tensor> gradients_of(
    const torch::nn::Module& module) {
  std::map<std::string, at::Tensor> gradients;
  for (const auto& p : module.named_parameters()) {
    gradients[p.key()] = plain(p.value().grad());
  }
  return gradients;
}

/// Says of each parameter whether it is close to that of another module.
inline void expect_equal_parameters(
    const torch::nn::Module& got, const torch::nn::Module& want) {
  const auto mine = got.named_parameters();
  for (const auto& p : want.named_parameters()) {
    EXPECT_TRUE(close(mine[p.key()], p.value())) << p.key();
  }
}
inline void expect_equal_gradients(
    const torch::nn::Module& got, const torch::nn::Module& want) {
  const auto mine = gradients_of(got);
  for (const auto& [name, gradient] : gradients_of(want)) {
    EXPECT_TRUE(close(mine.at(name), gradient)) << name;
  }
}

}  // namespace tessera::testing
