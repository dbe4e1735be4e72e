// One rank's part of `tessera bench train`, on whatever engine started it.
#include <tessera/comm/device_mesh.h>
#include <tessera/parallel/data_parallel.h>
#include <tessera/parallel/parallelize_module.h>
#include <tessera/tensor/dtensor.h>
#include "examples/gpt.h"

#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "bench_workers.h"

namespace tessera::cli {

namespace {

using Clock = std::chrono::steady_clock;
using gpt::Gpt;

constexpr double kLearningRate = 1e-3;
constexpr int64_t kBatches = 8;  // different ones, used in turn

/// Gives parameters values that benchmarks/train_pytorch.py makes alike.
void set_values(torch::nn::Module& model) {
  const torch::NoGradGuard no_grad;
  int64_t number = 0;
  for (const auto& item : model.named_parameters()) {
    const at::Tensor& parameter = item.value();
    const at::Tensor place = at::arange(parameter.numel(), at::kDouble);
    at::Tensor waves = at::sin((place + 1) * (place + 100 * number++)) * 0.05;
    if (item.key().find("norm") != std::string::npos &&
        item.key().ends_with("weight")) {
      waves += 1;
    }
    parameter.copy_(waves.view(parameter.sizes()));
  }
}

struct Batch {
  at::Tensor inputs;
  at::Tensor targets;
};

/// Returns a batch that benchmarks/train_pytorch.py makes alike: the rows of
/// one of the groups along "dp".
Batch batch_of(const TrainBenchOptions& o, int64_t number, int64_t group) {
  const at::Tensor place =
      at::arange(o.batch * (o.length + 1), at::kLong) + 1000 * number;
  const at::Tensor text =
      ((place * place).floor_divide(7) + 3 * place).remainder(o.vocabulary);
  const int64_t rows = o.batch / o.dp;
  const at::Tensor mine =
      text.view({o.batch, o.length + 1}).narrow(0, group * rows, rows);
  return {
      mine.narrow(1, 0, o.length).contiguous(),
      mine.narrow(1, 1, o.length).contiguous()};
}

DeviceMesh mesh_of(const TrainBenchOptions& o) {
  return o.dp > 1 ? init_device_mesh(at::kCPU, {o.dp, o.tp}, {"dp", "tp"})
                  : init_device_mesh(at::kCPU, {o.tp}, {"tp"});
}

Gpt new_model(const TrainBenchOptions& o, const DeviceMesh& mesh) {
  Gpt model(gpt::Sizes{
      .vocabulary = o.vocabulary,
      .length = o.length,
      .width = o.width,
      .heads = o.heads,
      .hidden = o.hidden,
      .layers = o.layers});
  set_values(*model);
  parallelize_module(
      model, mesh,
      {{"blocks.*.attention.[qkv]", ColwiseParallel()},
       {"blocks.*.attention.o", RowwiseParallel()},
       {"blocks.*.mlp.up", ColwiseParallel()},
       {"blocks.*.mlp.down", RowwiseParallel()}});
  return model;
}

/// This rank's model, optimizer and part of the data.
class Training {
 public:
  explicit Training(const TrainBenchOptions& o)
      : mesh_(mesh_of(o)),
        model_(new_model(o, mesh_)),
        optimizer_(
            model_->parameters(), torch::optim::AdamWOptions(kLearningRate)),
        along_(static_cast<size_t>(mesh_.ndim()), Replicate()) {
    if (o.dp > 1) {
      parallel_.emplace(*model_, mesh_);
      along_[0] = Shard(0);
    }
    const int64_t group = o.dp > 1 ? mesh_.local_rank("dp") : 0;
    for (int64_t i = 0; i < kBatches; ++i) {
      batches_.push_back(batch_of(o, i, group));
    }
  }

  /// Makes one step and returns its loss, sharded.
  at::Tensor step() {
    const Batch& batch = batches_[done_++ % batches_.size()];
    optimizer_.zero_grad();
    const at::Tensor logits = model_(from_local(batch.inputs, mesh_, along_));
    const at::Tensor loss = torch::nn::functional::cross_entropy(
        logits.flatten(0, 1),
        from_local(batch.targets, mesh_, along_).flatten());
    loss.backward();
    if (parallel_) {
      parallel_->reduce_gradients();
    }
    optimizer_.step();
    return loss.detach();
  }

 private:
  DeviceMesh mesh_;
  Gpt model_;
  torch::optim::AdamW optimizer_;
  std::optional<DataParallel> parallel_;
  Placements along_;  // of a batch
  std::vector<Batch> batches_;
  size_t done_ = 0;
};

/// Returns the seconds of a step on the slowest rank.
double time_steps(Training& training, int steps) {
  const Communicator all = init().communicator();
  all.barrier();
  const auto begin = Clock::now();
  for (int i = 0; i < steps; ++i) {
    training.step();
  }
  all.barrier();
  const std::chrono::duration<double> taken = Clock::now() - begin;
  const at::Tensor slowest = at::full({1}, taken.count() / steps, at::kDouble);
  all.all_reduce(slowest, ReduceOp::kMax);
  return slowest.item<double>();
}

}  // namespace

std::optional<TrainTime> bench_train(const TrainBenchOptions& options) {
  at::set_num_threads(1);
  std::optional<TrainTime> result;
  run([&] {
    Training training(options);
    TrainTime time;
    for (int i = 0; i < options.warm_up; ++i) {
      time.losses.push_back(full_tensor(training.step()).item<double>());
    }
    time.step_seconds = time_steps(training, options.steps);
    if (rank() == 0) {
      result = std::move(time);
    }
  });
  return result;
}

}  // namespace tessera::cli
