// A Llama in training: tensor parallelism along tp; parameters, gradients and
// optimizer states cut along dp. It is saved, and goes on on another mesh, with
// the losses of the same model without ranks.
//
//   build/bin/tessera run -n 4 -- build/bin/13_train_llama
//   build/bin/tessera run -n 2 --engine gloo -- build/bin/13_train_llama
#include <cmath>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include <tessera/tessera.h>
#include <torch/torch.h>

#include "llama.h"

namespace {

using namespace tessera;

constexpr int64_t kLength = 24;
constexpr int64_t kRows = 8;

// Rows of kLength + 1 letters, others in each step.
at::Tensor batch(int64_t step) {
  const std::string text =
      "Once upon a time a tensor was cut in four, and nobody saw. ";
  std::vector<int64_t> words;
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t i = 0; i <= kLength; ++i) {
      const auto place = static_cast<size_t>(17 * row + 5 * step + i);
      words.push_back(text[place % text.size()] - ' ');
    }
  }
  return torch::tensor(words, at::kLong).view({kRows, kLength + 1});
}

// A model and its optimizer, on a mesh or without ranks.
class Training {
 public:
  explicit Training(std::optional<DeviceMesh> on = {}) : mesh_(std::move(on)) {
    manual_seed(3);
    {
      const ReplicatedRandom equal;  // the same on all ranks
      model_ = llama::Llama(sizes_);
    }
    model_->to(at::kDouble);
    if (mesh_) {
      parallelize_module(model_, *mesh_, plan(sizes_));
      fully_shard(*model_, *mesh_, {.groups = {"model.layers.*"}});
    }
    optimizer_.emplace(model_->parameters(), 0.01);
  }

  double step(int64_t number) {
    at::Tensor words = batch(number);
    if (mesh_) {
      words = distribute_tensor(words, *mesh_, {Shard(0), Replicate()});
    }
    optimizer_->zero_grad();
    const at::Tensor logits = model_(words.narrow(1, 0, kLength));
    const at::Tensor loss = torch::nn::functional::cross_entropy(
        logits.flatten(0, 1), words.narrow(1, 1, kLength).flatten());
    loss.backward();
    clip_grad_norm(model_->parameters(), 1.0);
    optimizer_->step();
    return loss.item<double>();
  }

  checkpoint::StateDict state() {
    return checkpoint::state_dict(*model_, *optimizer_);
  }

  std::string head() const { return to_string(spec(model_->lm_head->weight)); }

 private:
  llama::Sizes sizes_;
  std::optional<DeviceMesh> mesh_;
  llama::Llama model_ = nullptr;
  std::optional<torch::optim::AdamW> optimizer_;
};

void print(const std::string& line) {
  std::cout << (rank() == 0 ? line + "\n" : "") << std::flush;
}

void body() {
  constexpr int64_t kSteps = 12;
  const std::string path =
      std::filesystem::temp_directory_path() /
      ("tessera_train_llama_" + std::to_string(world_size()));
  std::vector<double> losses, wanted;
  Training plain;
  for (int64_t i = 0; i < kSteps; ++i) {
    wanted.push_back(plain.step(i));
  }

  const int64_t n = world_size();
  const int64_t tp = n % 2 == 0 ? 2 : 1;
  Training first(init_device_mesh(at::kCPU, {n / tp, tp}, {"dp", "tp"}));
  for (int64_t i = 0; i < kSteps / 2; ++i) {
    losses.push_back(first.step(i));
  }
  checkpoint::save(first.state(), path, {.overwrite = true});

  const int64_t dp = tp < n ? 1 : n;  // another mesh
  Training second(init_device_mesh(at::kCPU, {dp, n / dp}, {"dp", "tp"}));
  checkpoint::StateDict state = second.state();
  checkpoint::load(state, path);
  for (int64_t i = kSteps / 2; i < kSteps; ++i) {
    losses.push_back(second.step(i));
  }

  bool equal = true;
  for (size_t i = 0; i < losses.size(); ++i) {
    equal = equal && std::abs(losses[i] - wanted[i]) < 1e-10;
  }
  print("first " + first.head());
  print("then " + second.head());
  print(c10::str("loss ", losses.front(), " to ", losses.back()));
  print(equal ? "equal to the plain run" : "differs");
  init().communicator().barrier();
  if (rank() == 0) {
    std::filesystem::remove_all(path);
  }
}

}  // namespace

int main() {
  tessera::run(body);
}
