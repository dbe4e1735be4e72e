// A GPT in training, plain and on a mesh: what the tests of parallel modules
// share.
#pragma once

#include <harness/sharded_test.h>

#include <memory>

#include "../../examples/gpt.h"

namespace tessera::testing {

using gpt::Gpt;
using GptSizes = gpt::Sizes;

constexpr int64_t kBatch = 4;

inline Gpt new_gpt(const GptSizes& sizes, at::ScalarType dtype = at::kDouble) {
  Gpt model(sizes);
  model->to(device(), dtype);
  const torch::NoGradGuard guard;
  double shift = 0.01;
  for (const at::Tensor& p : model->parameters()) {
    p.copy_(distinct(p.sizes()).mul(0.2).add(shift));
    shift += 0.01;
  }
  return model;
}

inline at::Tensor indices(const GptSizes& sizes, int64_t step) {
  return at::arange(kBatch * sizes.length, i64())
      .mul(7)
      .add(step)
      .remainder(sizes.vocabulary)
      .view({kBatch, sizes.length});
}
inline at::Tensor targets(const GptSizes& sizes, int64_t step) {
  return indices(sizes, 5 * step + 3);
}

inline at::Tensor loss_of(const at::Tensor& logits, const at::Tensor& wanted) {
  return torch::nn::functional::cross_entropy(
      logits.flatten(0, 1), wanted.flatten());
}

inline ParallelPlan tensor_parallel() {
  return {
      {"blocks.*.attention.[qkv]", ColwiseParallel()},
      {"blocks.*.attention.o", RowwiseParallel()},
      {"blocks.*.mlp.up", ColwiseParallel()},
      {"blocks.*.mlp.down", RowwiseParallel()}};
}

/// Cuts tokens and logits by vocabulary too.
inline ParallelPlan with_vocabulary(
    ParallelPlan plan, const ColwiseParallel& head = {}) {
  plan.push_back({"tokens", RowwiseParallel()});
  plan.push_back({"head", head});
  return plan;
}

/// Between the layers each rank has a part of the sequence.
inline ParallelPlan sequence_parallel() {
  const RowwiseParallel by_sequence{.output_layouts = Shard(1)};
  return {
      {"tokens", by_sequence},
      {"blocks.*.norm?", SequenceParallel()},
      {"blocks.*.attention.[qkv]", ColwiseParallel()},
      {"blocks.*.attention.o", by_sequence},
      {"blocks.*.mlp.up", ColwiseParallel()},
      {"blocks.*.mlp.down", by_sequence},
      {"norm", SequenceParallel()},
      {"head", ColwiseParallel()}};
}

/// The same program plainly and on a mesh whose first dim cuts the batch where
/// it is called "dp".
struct TrainingCase {
  const char* name;
  std::vector<int64_t> mesh;
  std::vector<std::string> dims;
  ParallelPlan plan;
  GptSizes sizes = {};
  bool loss_parallel = false;
  bool data_parallel = false;
  at::ScalarType dtype = at::kDouble;

  Placements batch() const {
    Placements placements(mesh.size(), Replicate());
    if (dims[0] == "dp") {
      placements[0] = Shard(0);
    }
    return placements;
  }
};

using Losses = std::vector<double>;

inline Losses train_plain(const TrainingCase& c, int steps) {
  Gpt model = new_gpt(c.sizes, c.dtype);
  torch::optim::AdamW optimizer(model->parameters(), 1e-2);
  Losses losses;
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    const at::Tensor loss =
        loss_of(model(indices(c.sizes, step)), targets(c.sizes, step));
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

/// Calls `after_backward(model, loss)` in every step, before the optimizer's.
template <class AfterBackward>
void train_on(
    const DeviceMesh& mesh, const TrainingCase& c, int steps,
    const AfterBackward& after_backward) {
  Gpt model = new_gpt(c.sizes, c.dtype);
  parallelize_module(model, mesh, c.plan);
  std::optional<DataParallel> parallel;
  if (c.data_parallel) {
    parallel.emplace(*model, mesh);
  }
  torch::optim::AdamW optimizer(model->parameters(), 1e-2);
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    std::optional<LossParallel> guard;
    if (c.loss_parallel) {
      guard.emplace();
    }
    const at::Tensor loss = loss_of(
        model(distribute_tensor(indices(c.sizes, step), mesh, c.batch())),
        distribute_tensor(targets(c.sizes, step), mesh, c.batch()));
    loss.backward();
    if (parallel) {
      parallel->reduce_gradients();
    }
    after_backward(*model, loss.detach());
    optimizer.step();
  }
}

inline Losses train_parallel(const TrainingCase& c, int steps) {
  Losses losses;
  train_on(
      mesh_of(c.mesh, c.dims), c, steps,
      [&](const torch::nn::Module&, const at::Tensor& loss) {
        losses.push_back(full_tensor(loss).item<double>());
      });
  return losses;
}

}  // namespace tessera::testing
