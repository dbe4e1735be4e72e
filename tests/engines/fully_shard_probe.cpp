// Trains a fully sharded GPT, and prints a hash of what each rank ends with:
//   rank 1: loss 3f9c..., shards 07a1...
// Engines must print the same.
#include <cstdio>
#include <string>

#include <torch/torch.h>

#include <tessera/tessera.h>

#include "examples/gpt.h"

namespace {

using namespace tessera;

constexpr uint64_t kSeed = 0xcbf29ce484222325;

// FNV-1a.
uint64_t hash_of(const at::Tensor& tensor, uint64_t hash) {
  const at::Tensor t = tensor.detach().contiguous();
  const auto* bytes = static_cast<const unsigned char*>(t.const_data_ptr());
  for (size_t i = 0; i < t.nbytes(); ++i) {
    hash = (hash ^ bytes[i]) * 0x100000001b3;
  }
  return hash;
}

void train(bool tensor_parallel, bool bf16) {
  const int size = static_cast<int>(init().size());
  const DeviceMesh mesh =
      tensor_parallel ? init_device_mesh(at::kCPU, {size / 2, 2}, {"dp", "tp"})
                      : init_device_mesh(at::kCPU, {size}, {"dp"});
  gpt::Gpt model(gpt::Sizes{});
  {
    const torch::NoGradGuard no_grad;
    double shift = 0.01;
    for (const at::Tensor& p : model->parameters()) {
      p.copy_(at::arange(p.numel()).view(p.sizes()).sin().mul(0.2).add(shift));
      shift += 0.01;
    }
  }
  if (!bf16) {
    model->to(at::kDouble);
  }
  if (tensor_parallel) {
    parallelize_module(
        *model, mesh,
        {{"blocks.*.attention.[qkv]", ColwiseParallel()},
         {"blocks.*.attention.o", RowwiseParallel()},
         {"blocks.*.mlp.up", ColwiseParallel()},
         {"blocks.*.mlp.down", RowwiseParallel()}});
  }
  FullyShardOptions options{.groups = {"blocks.*"}};
  if (bf16) {
    options.mp_policy = {
        .param_dtype = at::kBFloat16, .reduce_dtype = at::kFloat};
  }
  const FullyShard sharded = fully_shard(*model, mesh, options);
  torch::optim::AdamW optimizer(model->parameters(), 1e-2);
  Placements batch(static_cast<size_t>(mesh.ndim()), Replicate());
  batch[0] = Shard(0);
  at::Tensor loss;
  for (int64_t step = 0; step < 6; ++step) {
    const at::Tensor x = distribute_tensor(
        at::arange(24, at::kLong).mul(7).add(step).remainder(12).view({4, 6}),
        mesh, batch);
    optimizer.zero_grad();
    loss = torch::nn::functional::cross_entropy(
        model(x).flatten(0, 1).to(bf16 ? at::kFloat : at::kDouble),
        x.flatten());
    loss.backward();
    optimizer.step();
  }
  uint64_t shards = kSeed;
  for (const at::Tensor& p : model->parameters()) {
    shards = hash_of(to_local(p.detach()), shards);
  }
  std::printf(
      "rank %d, %s %s: loss %016llx, shards %016llx\n",
      static_cast<int>(rank()), tensor_parallel ? "tp" : "dp",
      bf16 ? "bf16" : "f64",
      static_cast<unsigned long long>(hash_of(full_tensor(loss), kSeed)),
      static_cast<unsigned long long>(shards));
  std::fflush(stdout);
}

}  // namespace

int main() {
  at::set_num_threads(1);
  run([] {
    train(false, false);
    train(false, true);
    if (init().size() % 2 == 0) {
      train(true, false);
    }
  });
}
