// Activation checkpointing: a GPT on a mesh whose blocks are computed again in
// the backward pass instead of kept. Its class stays as it is; the loop over
// the blocks says which calls are regions.
//
//   build/bin/tessera run -n 2 -- build/bin/10_recompute
//   mpirun -n 4 build/bin/10_recompute
//
// Prints whether the gradients are those without regions, the memory that a
// rank holds for the backward pass, and what was communicated.
#include <iostream>
#include <memory>
#include <vector>

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <tessera/tessera.h>
#include <torch/torch.h>

#include "gpt.h"

namespace {

using namespace tessera;

// A tensor-parallel GPT, the same on every rank each time that it is called.
gpt::Gpt make_gpt(const DeviceMesh& mesh, const gpt::Sizes& sizes) {
  manual_seed(1);
  gpt::Gpt model = nullptr;
  {
    const ReplicatedRandom equal;
    model = gpt::Gpt(sizes);
  }
  model->to(at::kDouble);
  parallelize_module(
      model, mesh,
      {{"blocks.*.attention.[qkv]", ColwiseParallel()},
       {"blocks.*.attention.o", RowwiseParallel()},
       {"blocks.*.mlp.up", ColwiseParallel()},
       {"blocks.*.mlp.down", RowwiseParallel()}});
  return model;
}

at::Tensor logits_of(
    gpt::GptImpl& model, const at::Tensor& indices, bool checkpointed) {
  at::Tensor x = model.tokens(indices) + model.positions;
  for (const auto& module : *model.blocks) {
    const auto block = [&](at::Tensor h) {
      return torch::dropout(
          module->as<gpt::BlockImpl>()->forward(h), 0.1, /*train=*/true);
    };
    x = checkpointed ? activation_checkpoint(block, x) : block(x);
  }
  return model.head(model.norm(x));
}

// The bytes that this thread's tensors hold, as LibTorch reports them.
struct HeldBytes final : c10::MemoryReportingInfoBase {
  void reportMemoryUsage(
      void*, int64_t bytes, size_t, size_t, c10::Device) override {
    now += bytes;
  }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t now = 0;
};

struct Step {
  std::vector<at::Tensor> gradients;
  int64_t held = 0;  // bytes, between the forward and the backward pass
  int64_t collectives = 0;
};

Step take_step(const DeviceMesh& mesh, bool checkpointed) {
  const gpt::Sizes sizes{.layers = 4};
  gpt::Gpt model = make_gpt(mesh, sizes);
  const at::Tensor indices = distribute_tensor(
      at::arange(4 * sizes.length, at::kLong)
          .remainder(sizes.vocabulary)
          .view({4, sizes.length}),
      mesh, {Replicate()});
  const auto bytes = std::make_shared<HeldBytes>();
  const c10::DebugInfoGuard counts(c10::DebugInfoKind::PROFILER_STATE, bytes);
  const CommLog log;
  Step step;
  const at::Tensor loss =
      logits_of(*model, indices, checkpointed).square().mean();
  step.held = bytes->now;
  loss.backward();
  step.collectives = log.count();
  for (const at::Tensor& parameter : model->parameters()) {
    step.gradients.push_back(full_tensor(parameter.grad()));
  }
  return step;
}

void body() {
  const auto mesh = init_device_mesh(at::kCPU, {world_size()}, {"tp"});
  const Step plain = take_step(mesh, false);
  const Step again = take_step(mesh, true);
  bool equal = true;
  for (size_t i = 0; i < plain.gradients.size(); ++i) {
    equal = equal && at::equal(plain.gradients[i], again.gradients[i]);
  }
  if (rank() == 0) {
    std::cout << (equal ? "equal gradients\n" : "other gradients\n")
              << "bytes held: " << plain.held << ", with regions " << again.held
              << (again.held < plain.held ? ": fewer" : ": more")
              << "\ncollectives: " << plain.collectives << ", with regions "
              << again.collectives << std::endl;
  }
}

}  // namespace

int main() {
  tessera::run(body);
}
