// A GPT that no rank ever holds whole: made under a DeferredInit, placed on a
// mesh, and equal, bit for bit, to one that was made whole and then cut.
//
//   build/bin/tessera run -n 4 -- build/bin/11_deferred_init
#include <iostream>

#include <tessera/tessera.h>
#include <torch/torch.h>

#include "gpt.h"

namespace {

using namespace tessera;

ParallelPlan plan() {
  return {
      {"tokens", RowwiseParallel()},
      {"blocks.*.attention.[qkv]", ColwiseParallel()},
      {"blocks.*.attention.o", RowwiseParallel()},
      {"blocks.*.mlp.up", ColwiseParallel()},
      {"blocks.*.mlp.down", RowwiseParallel()},
      {"head", ColwiseParallel()}};
}

gpt::Gpt make_deferred(const gpt::Sizes& sizes) {
  DeferredInit later;  // shapes only, until the model is placed
  return gpt::Gpt(sizes);
}

gpt::Gpt make_whole(const gpt::Sizes& sizes) {
  ReplicatedRandom equal;
  return gpt::Gpt(sizes);
}

int64_t bytes_here(const torch::nn::Module& model) {
  size_t bytes = 0;
  for (const at::Tensor& t : model.parameters()) {
    bytes += to_local(t.detach()).nbytes();
  }
  return static_cast<int64_t>(bytes);
}

void body() {
  auto mesh = init_device_mesh(at::kCPU, {world_size()}, {"tp"});
  manual_seed(1);
  gpt::Gpt model = make_deferred({});
  CommLog log;
  parallelize_module(model, mesh, plan());
  const int64_t collectives = log.count();

  manual_seed(1);
  gpt::Gpt want = make_whole({});
  parallelize_module(want, mesh, plan());
  bool equal = true;
  for (size_t i = 0; i < want->parameters().size(); ++i) {
    equal = equal && at::equal(
                         to_local(model->parameters()[i].detach()),
                         to_local(want->parameters()[i].detach()));
  }
  if (rank() == 0) {
    std::cout << bytes_here(*model) << " bytes on rank 0, " << collectives
              << " collectives, equal to the whole one: " << std::boolalpha
              << equal << '\n';
  }
}

}  // namespace

int main() {
  tessera::run(body);
}
