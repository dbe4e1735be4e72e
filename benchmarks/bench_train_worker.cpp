// One rank's part of `tessera bench train`, on whatever engine started it, and
// all of `tessera bench step`.
#include <tessera/comm/device_mesh.h>
#include <tessera/parallel/data_parallel.h>
#include <tessera/parallel/parallelize_module.h>
#include <tessera/tensor/dtensor.h>
#include "examples/gpt.h"

#include <chrono>
#include <cmath>
#include <ctime>
#include <optional>
#include <utility>
#include <vector>

#include "bench_workers.h"
#include "gpt_data.h"

namespace tessera::cli {

namespace {

using Clock = std::chrono::steady_clock;
using gpt::Gpt;

constexpr double kLearningRate = 1e-3;
constexpr int64_t kBatches = 8;  // different ones, used in turn

DeviceMesh mesh_of(const TrainBenchOptions& o) {
  return o.dp > 1 ? init_device_mesh(at::kCPU, {o.dp, o.tp}, {"dp", "tp"})
                  : init_device_mesh(at::kCPU, {o.tp}, {"tp"});
}

Gpt new_model(
    const TrainBenchOptions& o, const std::optional<DeviceMesh>& mesh) {
  Gpt model(gpt::Sizes{
      .vocabulary = o.vocabulary,
      .length = o.length,
      .width = o.width,
      .heads = o.heads,
      .hidden = o.hidden,
      .layers = o.layers});
  set_gpt_values(*model);
  if (!mesh) {
    return model;
  }
  parallelize_module(
      model, *mesh,
      {{"blocks.*.attention.[qkv]", ColwiseParallel()},
       {"blocks.*.attention.o", RowwiseParallel()},
       {"blocks.*.mlp.up", ColwiseParallel()},
       {"blocks.*.mlp.down", RowwiseParallel()}});
  return model;
}

/// This rank's model, optimizer and part of the data; a plain model and all of
/// the data where there is no mesh.
class Training {
 public:
  Training(const TrainBenchOptions& o, std::optional<DeviceMesh> mesh)
      : mesh_(std::move(mesh)),
        model_(new_model(o, mesh_)),
        optimizer_(
            model_->parameters(), torch::optim::AdamWOptions(kLearningRate)) {
    if (mesh_) {
      along_.assign(static_cast<size_t>(mesh_->ndim()), Replicate());
    }
    if (o.dp > 1) {
      parallel_.emplace(*model_, *mesh_);
      along_[0] = Shard(0);
    }
    const int64_t group = o.dp > 1 ? mesh_->local_rank("dp") : 0;
    for (int64_t i = 0; i < kBatches; ++i) {
      batches_.push_back(
          gpt_batch({o.batch, o.length, o.vocabulary}, i, o.dp, group));
    }
  }

  /// Makes one step and returns its loss, sharded.
  at::Tensor step() {
    const GptBatch& batch = batches_[done_++ % batches_.size()];
    optimizer_.zero_grad();
    const at::Tensor logits = model_(on_mesh(batch.inputs));
    const at::Tensor loss = torch::nn::functional::cross_entropy(
        logits.flatten(0, 1), on_mesh(batch.targets).flatten());
    loss.backward();
    if (parallel_) {
      parallel_->reduce_gradients();
    }
    optimizer_.step();
    return loss.detach();
  }

 private:
  at::Tensor on_mesh(const at::Tensor& rows) const {
    return mesh_ ? from_local(rows, *mesh_, along_) : rows;
  }

  std::optional<DeviceMesh> mesh_;
  Gpt model_;
  torch::optim::AdamW optimizer_;
  std::optional<DataParallel> parallel_;
  Placements along_;  // of a batch
  std::vector<GptBatch> batches_;
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

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) +
         1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

std::vector<StepPair> bench_step(const TrainBenchOptions& options) {
  at::set_num_threads(1);
  std::vector<StepPair> pairs;
  run_ranks(1, [&] {
    Training plain(options, std::nullopt);
    Training sharded(options, mesh_of(options));
    for (int i = 0; i < options.warm_up; ++i) {
      const auto want = plain.step().item<double>();
      const auto have = full_tensor(sharded.step()).item<double>();
      TORCH_CHECK(
          std::abs(have - want) <= 1e-4 * std::abs(want), "bench step: loss ",
          have, " on the mesh, ", want, " without");
    }
    // In turns, so that both see the same machine.
    for (int i = 0; i < options.steps; ++i) {
      const double begin = cpu_seconds();
      plain.step();
      const double between = cpu_seconds();
      sharded.step();
      pairs.push_back({between - begin, cpu_seconds() - between});
    }
  });
  return pairs;
}

std::optional<TrainTime> bench_train(const TrainBenchOptions& options) {
  at::set_num_threads(1);
  std::optional<TrainTime> result;
  run([&] {
    Training training(options, mesh_of(options));
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
