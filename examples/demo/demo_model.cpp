#include "demo_model.h"

#include <algorithm>
#include <optional>

#include <ATen/autocast_mode.h>
#include <tessera/checkpoint/checkpoint.h>
#include <tessera/parallel/activation_checkpoint.h>
#include <tessera/parallel/loss_parallel.h>
#include <tessera/tensor/dtensor.h>

namespace tessera::cli {
namespace {

// The rate falls to nothing over the steps, and gradients that are rounding
// errors make no steps: else differences in the last bit grow, in any two runs,
// until f32 curves part.
constexpr double kLearningRate = 6e-3;
constexpr double kEpsilon = 1e-6;

/// Runs products of this thread in bf16 while it lives.
class Autocast {
 public:
  explicit Autocast(bool is_on) {
    at::autocast::set_autocast_enabled(at::kCPU, is_on);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::increment_nesting();
  }
  ~Autocast() {
    at::autocast::decrement_nesting();
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;
};

constexpr int kWritten = 100;  // characters after the prompt, at most
constexpr double kTemperature = 0.5;

/// Draws a character: between 0 and 1 each has a stretch as long as it is
/// likely, and the random number `uniform` lies in one of them.
int64_t draw(const at::Tensor& logits, const at::Tensor& uniform) {
  const at::Tensor chances = (logits.to(at::kDouble) / kTemperature).softmax(0);
  return std::min<int64_t>(
      (chances.cumsum(0) < uniform).sum().item<int64_t>(), logits.size(0) - 1);
}

}  // namespace

Gpt new_model(const Task& task) {
  Gpt model(gpt::Sizes{
      .vocabulary = task.corpus.vocabulary(),
      .length = kDemoSizes.length,
      .width = kDemoSizes.width,
      .heads = kDemoSizes.heads,
      .hidden = kDemoSizes.hidden,
      .layers = kDemoSizes.layers});
  model->to(task.dtype);
  const torch::NoGradGuard no_grad;
  const std::vector<at::Tensor> parameters = model->parameters();
  for (size_t i = 0; i < task.start.size(); ++i) {
    parameters[i].copy_(task.start[i]);
  }
  return model;
}

Task make_task(const DemoOptions& options) {
  Task task;
  task.dtype = options.dtype == "f64" ? at::kDouble : at::kFloat;
  task.autocast = options.dtype == "bf16";
  task.steps = options.steps;
  torch::manual_seed(0);
  for (const at::Tensor& value : new_model(task)->parameters()) {
    task.start.push_back(value.detach().clone());
  }
  return task;
}

ParallelPlan tensor_parallel() {
  return {
      {"tokens", RowwiseParallel()},
      {"blocks.*.attention.[qkv]", ColwiseParallel()},
      {"blocks.*.attention.o", RowwiseParallel()},
      {"blocks.*.mlp.up", ColwiseParallel()},
      {"blocks.*.mlp.down", RowwiseParallel()},
      {"head", ColwiseParallel()}};
}

void recompute_blocks(Gpt& model) {
  model->run_block = [](gpt::BlockImpl& block, const at::Tensor& x) {
    return activation_checkpoint(
        [&block](at::Tensor h) { return block.forward(h); }, x);
  };
}

at::Tensor Place::operator()(
    const at::Tensor& tensor, const Placement& along_dp) const {
  // Every rank has the same tensor and takes its part.
  return mesh ? distribute_tensor(
                    tensor, *mesh, {along_dp, Replicate()},
                    {.src_data_rank = std::nullopt})
              : tensor;
}

at::Tensor whole(const at::Tensor& tensor) {
  return is_dtensor(tensor) ? full_tensor(tensor) : tensor;
}

Training::Training(const Gpt& made)
    : model(made),
      optimizer(
          made->parameters(),
          torch::optim::AdamWOptions(kLearningRate).eps(kEpsilon)) {}

at::Tensor Training::loss(
    const Batch& batch, const Task& task, const Place& place) {
  const Autocast autocast(task.autocast);
  std::optional<LossParallel> over_the_cut_vocabulary;
  if (place.has_cut_logits) {
    over_the_cut_vocabulary.emplace();
  }
  return torch::nn::functional::cross_entropy(
      model(place(batch.inputs, Shard(0))).flatten(0, 1).to(task.dtype),
      place(batch.targets, Shard(0)).flatten());
}

void Training::step(
    int step, const at::Tensor& loss, const Task& task,
    DataParallel* parallel) {
  optimizer.zero_grad();
  for (auto& group : optimizer.param_groups()) {
    group.options().set_lr(
        kLearningRate * (task.steps - step + 1) / task.steps);
  }
  (task.autocast ? scaler.scale(loss) : loss).backward();
  if (parallel != nullptr) {
    parallel->reduce_gradients();
  }
  if (task.autocast) {
    scaler.step(optimizer);
    scaler.update();
  } else {
    optimizer.step();
  }
}

checkpoint::StateDict Training::state(const Task& task) {
  checkpoint::StateDict all{
      {"training", checkpoint::state_dict(*model, optimizer)}};
  if (!task.autocast) {
    return all;
  }
  const LossScalerState now = scaler.state();
  all.set(
      "scale", checkpoint::StateValue(now.scale).on_load([this](const auto& v) {
        scaler.set_state({v.to_double(), scaler.state().good_steps});
      }));
  all.set(
      "good_steps",
      checkpoint::StateValue(now.good_steps).on_load([this](const auto& v) {
        scaler.set_state({scaler.state().scale, v.to_int()});
      }));
  return all;
}

std::string write_line(Gpt& model, const Task& task, const Place& place) {
  const torch::NoGradGuard no_grad;
  const at::Tensor uniform = torch::rand(
      {kWritten}, at::detail::createCPUGenerator(/*seed=*/0), at::kDouble);
  const std::vector<int64_t> prompt = task.corpus.encode(kDemoPrompt);
  std::vector<int64_t> written = prompt;
  for (int i = 0; i < kWritten; ++i) {
    const auto held = std::min<int64_t>(
        static_cast<int64_t>(written.size()), kDemoSizes.length);
    std::vector<int64_t> window(written.end() - held, written.end());
    window.resize(static_cast<size_t>(kDemoSizes.length));
    const at::Tensor input = torch::tensor(window, at::kLong).unsqueeze(0);
    const at::Tensor logits = whole(model(place(input, Replicate())));
    written.push_back(draw(logits[0][held - 1], uniform[i]));
    if (task.corpus.decode({written.back()}) == "\n") {
      written.pop_back();
      break;
    }
  }
  return task.corpus.decode(
      {written.begin() + static_cast<int64_t>(prompt.size()), written.end()});
}

}  // namespace tessera::cli
