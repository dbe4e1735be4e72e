#include "demo_model.h"

#include <algorithm>

#include <tessera/tensor/dtensor.h>

namespace tessera::cli {
namespace {

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
  task.dtype = options.float32 ? at::kFloat : at::kDouble;
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
