// A GPT that was written for one device (gpt.h) on a mesh of two dims: "dp"
// cuts the batch, "tp" heads, hidden units and vocabulary.
//
//   build/bin/tessera run -n 4 -- build/bin/03_gpt
//   mpirun -n 4 build/bin/03_gpt
//
// Prints the losses beside those of one device, and the collectives by mesh
// dim: broadcasts and scatters place the model, all_reduces train it.
#include <cmath>
#include <iostream>
#include <map>
#include <optional>
#include <vector>

#include <tessera/tessera.h>

#include "gpt.h"

namespace {

using namespace tessera;

constexpr int kSteps = 10;
// ASCII up to 'z': 62 and 61 characters on two ranks.
const gpt::Sizes kSizes{.vocabulary = 'z' + 1, .length = 12};
const std::string kText =
    "A tessera is a small tile, and a mosaic is made of many: each of them has "
    "its place, and none knows the picture that they make together.";

// Sequences of characters, and the character that follows each of them.
std::pair<at::Tensor, at::Tensor> batch(int step) {
  const std::vector<int64_t> text(kText.begin(), kText.end());
  const at::Tensor windows =
      torch::tensor(text).unfold(0, kSizes.length + 1, 5).narrow(0, step, 8);
  return {
      windows.narrow(1, 0, kSizes.length), windows.narrow(1, 1, kSizes.length)};
}

gpt::Gpt make_model() {
  manual_seed(1);
  const ReplicatedRandom equal;
  gpt::Gpt model(kSizes);
  model->to(at::kDouble);
  return model;
}

ParallelPlan plan() {
  return {
      {"tokens", RowwiseParallel()},                    // by vocabulary
      {"blocks.*.attention.[qkv]", ColwiseParallel()},  // by heads
      {"blocks.*.attention.o", RowwiseParallel()},      // adds heads up
      {"blocks.*.mlp.up", ColwiseParallel()},           // by hidden units
      {"blocks.*.mlp.down", RowwiseParallel()},         // adds them up
      {"head", ColwiseParallel()}};                     // logits stay cut
}

// Trains on a mesh, or on one device where there is none.
std::vector<double> train(const std::optional<DeviceMesh>& mesh) {
  gpt::Gpt model = make_model();
  std::optional<DataParallel> gradients;
  if (mesh) {
    parallelize_module(model, *mesh, plan());
    gradients.emplace(*model, *mesh);
  }
  torch::optim::AdamW optimizer(model->parameters(), 0.01);
  const Placements by_rows{Shard(0), Replicate()};
  std::vector<double> losses;
  for (int step = 0; step < kSteps; ++step) {
    auto [in, next] = batch(step);
    if (mesh) {  // every rank has all sequences, and keeps those of its row
      in = distribute_tensor(in, *mesh, by_rows, {.src_data_rank = {}});
      next = distribute_tensor(next, *mesh, by_rows, {.src_data_rank = {}});
    }
    optimizer.zero_grad();
    const LossParallel guard;  // logits that are whole would be an error
    const at::Tensor loss = torch::nn::functional::cross_entropy(
        model(in).flatten(0, 1), next.flatten());
    loss.backward();
    if (gradients) {
      gradients->reduce_gradients();
    }
    clip_grad_norm(model->parameters(), 1.0);  // takes plain tensors too
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

void print(const std::string& line) {
  std::cout << (rank() == 0 ? line + "\n" : "") << std::flush;
}

void body() {
  const int64_t tp = world_size() % 2 == 0 ? 2 : 1;
  const auto mesh =
      init_device_mesh(at::kCPU, {world_size() / tp, tp}, {"dp", "tp"});
  const CommLog log;
  const std::vector<double> losses = train(mesh);
  std::map<std::string, int64_t> counts;
  for (const CommLogEntry& entry : log.entries()) {
    ++counts[entry.kind + " along " + entry.mesh_dims];
  }
  const std::vector<double> plain = train(std::nullopt);
  double difference = 0;
  for (size_t i = 0; i < plain.size(); ++i) {
    print(c10::str("step ", i, ": ", losses[i], ", one device ", plain[i]));
    difference = std::max(difference, std::abs(losses[i] - plain[i]));
  }
  for (const auto& [what, count] : counts) {
    print(c10::str(what, ": ", count));
  }
  print(difference < 1e-10 ? "equal to 1e-10" : "differs");
}

}  // namespace

int main() {
  tessera::run(body);
}
