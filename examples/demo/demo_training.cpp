// The demo's training: one GPT that knows nothing of ranks, once as it is and
// once on a mesh, from one start and with the same batches.
#include "demo_training.h"

#include <tessera/parallel/data_parallel.h>
#include <tessera/parallel/loss_parallel.h>
#include <tessera/parallel/parallelize_module.h>
#include <tessera/tensor/dtensor.h>
#include "examples/gpt.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "demo_corpus.h"
#include "demo_ranks.h"
#include "demo_records.h"

namespace tessera::cli {
namespace {

using gpt::Gpt;
using Clock = std::chrono::steady_clock;

// The rate falls to nothing over the steps, and gradients that are rounding
// errors make no steps: else differences in the last bit grow, in any two runs,
// until f32 curves part.
constexpr double kLearningRate = 6e-3;
constexpr double kEpsilon = 1e-6;
constexpr const char* kPrompt = "The keeper ";
constexpr int kWritten = 100;  // characters after the prompt, at most
constexpr double kTemperature = 0.5;

// The first run of an operator without a sharding rule says so once, in the
// middle of the progress bar.
struct NoWarnings final : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

/// What both runs share.
struct Task {
  Corpus corpus = Corpus::shipped();
  at::ScalarType dtype = at::kDouble;
  int steps = 0;
  std::vector<at::Tensor> start;  // the values of the parameters
};

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
  task.dtype = options.float32 ? at::kFloat : at::kDouble;
  task.steps = options.steps;
  torch::manual_seed(0);
  for (const at::Tensor& value : new_model(task)->parameters()) {
    task.start.push_back(value.detach().clone());
  }
  return task;
}

/// Returns the plan of Megatron: by outputs, then by inputs, so that attention
/// and MLP each add up once; and the vocabulary cut at both ends.
ParallelPlan tensor_parallel() {
  return {
      {"tokens", RowwiseParallel()},
      {"blocks.*.attention.[qkv]", ColwiseParallel()},
      {"blocks.*.attention.o", RowwiseParallel()},
      {"blocks.*.mlp.up", ColwiseParallel()},
      {"blocks.*.mlp.down", RowwiseParallel()},
      {"head", ColwiseParallel()}};
}

/// Where a model's inputs belong.
struct Place {
  std::optional<DeviceMesh> mesh;  // nothing: they stay plain

  at::Tensor operator()(
      const at::Tensor& tensor, const Placement& along_dp) const {
    // Every rank has the same tensor and takes its part.
    return mesh ? distribute_tensor(
                      tensor, *mesh, {along_dp, Replicate()},
                      {.src_data_rank = std::nullopt})
                : tensor;
  }
};

at::Tensor whole(const at::Tensor& tensor) {
  return is_dtensor(tensor) ? full_tensor(tensor) : tensor;
}

void set_rate(torch::optim::AdamW& optimizer, double rate) {
  for (auto& group : optimizer.param_groups()) {
    group.options().set_lr(rate);
  }
}

using Report = std::function<void(int step, double loss)>;

/// The same steps for both runs; `parallel` where gradients are to be summed.
void train(
    Gpt& model, const Task& task, const Place& place, DataParallel* parallel,
    const Report& report) {
  torch::optim::AdamW optimizer(
      model->parameters(),
      torch::optim::AdamWOptions(kLearningRate).eps(kEpsilon));
  for (int step = 1; step <= task.steps; ++step) {
    const Batch batch =
        task.corpus.batch(step, kDemoSizes.batch, kDemoSizes.length);
    optimizer.zero_grad();
    set_rate(optimizer, kLearningRate * (task.steps - step + 1) / task.steps);
    std::optional<LossParallel> over_the_cut_vocabulary;
    if (place.mesh) {
      over_the_cut_vocabulary.emplace();
    }
    const at::Tensor loss = torch::nn::functional::cross_entropy(
        model(place(batch.inputs, Shard(0))).flatten(0, 1),
        place(batch.targets, Shard(0)).flatten());
    loss.backward();
    if (parallel != nullptr) {
      parallel->reduce_gradients();
    }
    optimizer.step();
    report(step, whole(loss.detach()).item<double>());
  }
}

/// Draws a character: between 0 and 1 each has a stretch as long as it is
/// likely, and the random number `uniform` lies in one of them.
int64_t draw(const at::Tensor& logits, const at::Tensor& uniform) {
  const at::Tensor chances = (logits.to(at::kDouble) / kTemperature).softmax(0);
  return std::min<int64_t>(
      (chances.cumsum(0) < uniform).sum().item<int64_t>(), logits.size(0) - 1);
}

/// Lets a model go on with the prompt to the end of the line, with the same
/// random numbers for every model. Attention looks back only, so what stands
/// after the last character of a window does not count.
std::string write_line(Gpt& model, const Task& task, const Place& place) {
  const torch::NoGradGuard no_grad;
  const at::Tensor uniform = torch::rand(
      {kWritten}, at::detail::createCPUGenerator(/*seed=*/0), at::kDouble);
  const std::vector<int64_t> prompt = task.corpus.encode(kPrompt);
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

/// Trains, and fills in the run where this rank reports.
void run_training(
    Gpt& model, const Task& task, const Place& place, DataParallel* parallel,
    DemoRun* run, const DemoProgress& progress) {
  const auto begin = Clock::now();
  train(model, task, place, parallel, [&](int step, double loss) {
    if (run != nullptr) {
      run->losses.push_back(loss);
      run->seconds =
          std::chrono::duration<double>(Clock::now() - begin).count();
      progress({place.mesh.has_value(), step, loss, run->seconds});
    }
  });
}

void run_plain(const Task& task, DemoRun& run, const DemoProgress& progress) {
  Gpt model = new_model(task);
  const Place place;
  run_training(model, task, place, nullptr, &run, progress);
  run.text = write_line(model, task, place);
}

/// Trains on one rank of the world; `result` is null on all but rank 0.
void run_sharded(
    const Task& task, const DemoMesh& shape, DemoResult* result,
    const DemoProgress& progress) {
  const DeviceMesh mesh =
      init_device_mesh(at::kCPU, {shape.dp, shape.tp}, {"dp", "tp"});
  Gpt model = new_model(task);
  parallelize_module(model, mesh, tensor_parallel());
  DataParallel parallel(*model, mesh);
  const Place place{mesh};
  {
    const CommLog log;
    run_training(
        model, task, place, &parallel, result ? &result->sharded : nullptr,
        progress);
    if (result != nullptr) {
      result->traffic = sum_up(log.entries());
    }
  }
  const std::string text = write_line(model, task, place);
  if (result != nullptr) {
    result->sharded.text = text;
    result->mesh = to_string(mesh);
    result->engine = init().engine();
    for (const auto& item : model->named_parameters()) {
      result->parameters.push_back(describe(item.key(), item.value()));
    }
  }
}

}  // namespace

DemoResult train_demo(
    const DemoOptions& options, const DemoProgress& progress) {
  // Ranks share the cores, so each has one thread, and so has the plain run.
  at::set_num_threads(1);
  const Task task = make_task(options);
  DemoResult result;
  result.characters = task.corpus.size();
  result.vocabulary = task.corpus.vocabulary();
  result.prompt = kPrompt;
  if (!options.processes || rank() == 0) {
    run_plain(task, result.plain, progress);
  }
  on_ranks(options, [&] {
    NoWarnings quiet;
    const c10::WarningUtils::WarningHandlerGuard guard(&quiet);
    run_sharded(task, options.mesh, rank() == 0 ? &result : nullptr, progress);
  });
  return result;
}

}  // namespace tessera::cli
