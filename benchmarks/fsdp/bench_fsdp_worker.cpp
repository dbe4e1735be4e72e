// One rank's part of `tessera bench fsdp`, on whatever engine started it.
#include <tessera/comm/comm_log.h>
#include <tessera/comm/device_mesh.h>
#include <tessera/parallel/fully_shard.h>
#include <tessera/tensor/dtensor.h>
#include "examples/gpt.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>
#include <utility>

#include "bench_fsdp.h"
#include "benchmarks/gpt_data.h"

namespace tessera::cli {

namespace {

using Clock = std::chrono::steady_clock;
using gpt::Gpt;
using Keep = FullyShard::Accumulate::Keep;

constexpr double kLearningRate = 1e-3;
constexpr int64_t kBatches = 8;  // different ones, used in turn

/// Returns bytes of this process: VmRSS now, VmHWM at most.
int64_t memory(const std::string& word) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(word + ":")) {
      return std::stoll(line.substr(word.size() + 1)) << 10;
    }
  }
  return 0;
}

/// VmHWM begins anew.
void forget_peak() {
  std::ofstream("/proc/self/clear_refs") << "5";
}

DeviceMesh mesh_of(const FsdpCase& one) {
  const int64_t shards = one.ranks / one.copies;
  return one.copies > 1
             ? init_device_mesh(
                   at::kCPU, {one.copies, shards}, {"replicate", "dp"})
             : init_device_mesh(at::kCPU, {shards}, {"dp"});
}

FullyShardOptions options_of(const FsdpCase& one) {
  FullyShardOptions options{.mesh_dim = "dp", .groups = {"blocks.*"}};
  if (one.copies > 1) {
    options.replicate_dim = "replicate";
  }
  if (one.bf16) {
    options.mp_policy = {
        .param_dtype = at::kBFloat16, .reduce_dtype = at::kFloat};
  }
  return options;
}

/// This rank's model, optimizer and part of the data.
class Training {
 public:
  explicit Training(const FsdpCase& one)
      : one_(one),
        mesh_(mesh_of(one)),
        model_(new_model(one)),
        sharded_(fully_shard(*model_, mesh_, options_of(one))),
        optimizer_(
            model_->parameters(), torch::optim::AdamWOptions(kLearningRate)),
        along_(static_cast<size_t>(mesh_.ndim()), Shard(0)) {
    for (int64_t i = 0; i < kBatches; ++i) {
      batches_.push_back(gpt_batch(
          {one.batch, one.length, one.vocabulary}, i, one.ranks, rank()));
    }
  }

  void step() {
    const GptBatch& batch = batches_[done_++ % batches_.size()];
    optimizer_.zero_grad();
    const auto inputs = batch.inputs.chunk(one_.micro_batches);
    const auto targets = batch.targets.chunk(one_.micro_batches);
    at::Tensor total;
    const auto pass = [&](size_t i) {
      const at::Tensor loss = loss_of(inputs[i], targets[i]);
      loss.backward();
      total = total.defined() ? total + loss.detach() : loss.detach();
    };
    {
      const FullyShard::Accumulate accumulate(
          sharded_, static_cast<Keep>(one_.keep));
      for (size_t i = 0; i + 1 < inputs.size(); ++i) {
        pass(i);
      }
    }
    pass(inputs.size() - 1);
    optimizer_.step();
    loss_ = total;
  }
  /// Returns the loss of the last step.
  double loss() const { return full_tensor(loss_).item<double>(); }

 private:
  static Gpt new_model(const FsdpCase& one) {
    Gpt model(gpt::Sizes{
        .vocabulary = one.vocabulary,
        .length = one.length,
        .width = one.width,
        .heads = one.heads(),
        .hidden = one.hidden(),
        .layers = one.layers});
    set_gpt_values(*model);
    return model;
  }

  at::Tensor loss_of(const at::Tensor& inputs, const at::Tensor& targets) {
    const at::Tensor logits = model_(from_local(inputs, mesh_, along_));
    return torch::nn::functional::cross_entropy(
               logits.flatten(0, 1).to(at::kFloat),
               from_local(targets, mesh_, along_).flatten()) /
           one_.micro_batches;
  }

  FsdpCase one_;
  DeviceMesh mesh_;
  Gpt model_;
  FullyShard sharded_;
  torch::optim::AdamW optimizer_;
  Placements along_;  // of a batch
  std::vector<GptBatch> batches_;
  size_t done_ = 0;
  at::Tensor loss_;  // of the last step
};

template <class T>
T largest(T value) {
  const at::Tensor all = at::full({1}, static_cast<double>(value), at::kDouble);
  init().communicator().all_reduce(all, ReduceOp::kMax);
  return static_cast<T>(all.item<double>());
}

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
  return largest(taken.count() / steps);
}

FsdpFigures measure(const FsdpCase& one) {
  const Communicator all = init().communicator();
  Training training(one);
  all.barrier();
  const int64_t held = memory("VmRSS");
  all.barrier();
  forget_peak();
  all.barrier();
  FsdpFigures figures;
  for (int i = 0; i < one.warm_up; ++i) {
    training.step();
    figures.losses.push_back(training.loss());
  }
  all.barrier();
  // Rank threads share a process.
  const int in_process = init().engine() == "threads" ? one.ranks : 1;
  figures.peak_bytes = largest(memory("VmHWM") - held) / in_process;
  {
    const CommLog log;
    training.step();
    figures.calls = log.count();
    figures.bytes = log.bytes();
  }
  figures.step_seconds.push_back(time_steps(training, one.steps));
  return figures;
}

}  // namespace

std::optional<FsdpFigures> bench_fsdp(const FsdpCase& one) {
  at::set_num_threads(1);
  std::optional<FsdpFigures> result;
  run([&] {
    FsdpFigures figures = measure(one);
    if (rank() == 0) {
      result = std::move(figures);
    }
  });
  return result;
}

}  // namespace tessera::cli
