// A function with and without activation_checkpoint(): results, gradients and
// what comes after must be equal.
#pragma once

#include <harness/sharded_test.h>

#include <functional>
#include <vector>

namespace tessera::testing {

using Tensors = std::vector<at::Tensor>;

inline at::Tensor in_region(
    const std::function<at::Tensor(at::Tensor)>& fn, const at::Tensor& x,
    const ActivationCheckpointOptions& options = {}) {
  return activation_checkpoint(fn, x, options);
}

/// What a run leaves: its results, gradients of inputs and parameters, and a
/// random number drawn after the backward pass.
inline Tensors run_once(
    const CheckpointFn& program, const Tensors& inputs,
    const Tensors& parameters) {
  manual_seed(5);
  torch::manual_seed(5);
  for (const Tensors& all : {inputs, parameters}) {
    for (const at::Tensor& t : all) {
      t.mutable_grad() = at::Tensor();
    }
  }
  const Tensors results = program(inputs);
  at::Tensor loss;
  for (const at::Tensor& result : results) {
    const at::Tensor part = (result * result).sum();
    loss = loss.defined() ? loss + part : part;
  }
  loss.backward();
  Tensors all;
  for (const at::Tensor& result : results) {
    all.push_back(plain(result).clone());
  }
  for (const Tensors& leaves : {inputs, parameters}) {
    for (const at::Tensor& t : leaves) {
      if (t.requires_grad()) {
        all.push_back(plain(t.grad()).clone());
      }
    }
  }
  if (is_dtensor(results[0])) {  // threads share LibTorch's own generator
    all.push_back(plain(at::rand_like(results[0])));
  }
  return all;
}

/// Compares `fn` in a region with `fn` alone.
inline void expect_recomputed(
    const CheckpointFn& fn, const Tensors& inputs, const Tensors& parameters,
    const ActivationCheckpointOptions& options = {}) {
  const Tensors want = run_once(fn, inputs, parameters);
  const Tensors got = run_once(
      [&](const Tensors& in) { return activation_checkpoint(fn, in, options); },
      inputs, parameters);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(close(got[i], want[i], 1e-12)) << "tensor " << i;
  }
}

inline at::Tensor leaf(
    const at::Tensor& value, const DeviceMesh& mesh,
    const Placements& placements) {
  return distribute_tensor(value, mesh, placements).requires_grad_();
}

}  // namespace tessera::testing
