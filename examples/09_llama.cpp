// A Llama in the files of Hugging Face, read straight into a model on a mesh
// and served: each rank reads its own part of every weight, and keeps the keys
// and values of its heads. Prints what the model says after a prompt, that the
// same model without ranks says it too, and what a word sends.
//
//   build/bin/tessera run -n 4 -- build/bin/09_llama FOLDER [HEADS]
//   build/bin/tessera run -n 2 --engine gloo -- build/bin/09_llama
//
// FOLDER has model.safetensors, or model-00001-of-00002.safetensors ... and
// model.safetensors.index.json. Without one, the example makes one.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <sstream>
#include <string>

#include <tessera/tessera.h>
#include <torch/torch.h>

#include "llama.h"

namespace {

using namespace tessera;

// What the shapes of the weights say; only the number of heads they do not.
llama::Sizes sizes_of(const std::string& folder, int64_t heads) {
  llama::Sizes sizes{.heads = heads, .layers = 0, .has_head = false};
  for (const checkpoint::Entry& entry : checkpoint::list(folder)) {
    const bool is_first = entry.name.starts_with("model.layers.0.");
    if (entry.name == "model.embed_tokens.weight") {
      sizes.vocabulary = entry.shape.at(0);
      sizes.width = entry.shape.at(1);
    } else if (is_first && entry.name.ends_with("k_proj.weight")) {
      sizes.kv_heads = entry.shape.at(0) * heads / entry.shape.at(1);
    } else if (is_first && entry.name.ends_with("gate_proj.weight")) {
      sizes.hidden = entry.shape.at(0);
    }
    sizes.layers += entry.name.ends_with("q_proj.weight") ? 1 : 0;
    sizes.has_head = sizes.has_head || entry.name == "lm_head.weight";
  }
  return sizes;
}

// Weights as they are in the files, computed with in f64. The table of angles
// is no weight: files of today leave it out.
void load(const llama::Llama& model, const std::string& folder) {
  checkpoint::StateDict state = checkpoint::state_dict(*model);
  checkpoint::load(
      state, folder, {.convert_dtype = true, .only = {"*.weight"}});
}

// The likeliest word after the prompt, and its logit.
std::string answer(const at::Tensor& logits) {
  const auto [value, word] = logits[0][logits.size(1) - 1].max(0);
  std::ostringstream text;
  text << "word " << word.item<int64_t>() << ", logit " << std::setprecision(15)
       << value.item<double>();
  return text.str();
}

void print(const std::string& line) {
  std::cout << (rank() == 0 ? line + "\n" : "") << std::flush;
}

void write_random(const std::string& folder) {
  manual_seed(0);
  const ReplicatedRandom equal;
  llama::Llama model;
  checkpoint::StateDict weights;
  for (const auto& [name, tensor] : checkpoint::state_dict(*model)) {
    if (name.ends_with(".weight")) {
      weights.set(name, tensor.to_tensor().to(at::kBFloat16));
    }
  }
  checkpoint::save(
      weights, folder,
      {.format = checkpoint::Format::kSafetensors, .overwrite = true});
}

// What Megatron sends for a word of each row: the sums of two layers per block
// and of the embedding, and the logits.
int64_t megatron_bytes(const llama::Sizes& sizes, int64_t rows, int64_t ranks) {
  const auto item = static_cast<int64_t>(sizeof(double));
  const int64_t sums = (2 * sizes.layers + 1) * rows * sizes.width * item;
  const int64_t logits = sizes.vocabulary * item;
  return 2 * (sums - sums / ranks) + rows * (logits - logits / ranks);
}

using Zeros = std::function<at::Tensor(std::vector<int64_t>)>;

struct Served {
  at::Tensor words;
  int64_t bytes;  // of the last word
  double words_per_second;
};

// Twice, since the first time decides and plans.
Served serve(
    llama::Llama& model, const llama::Sizes& sizes, const at::Tensor& prompt,
    const Zeros& zeros, int64_t count) {
  Served served{};
  for (int run = 0; run < 2; ++run) {
    auto caches =
        make_caches(sizes, prompt.size(0), prompt.size(1) + count, zeros);
    const auto begin = std::chrono::steady_clock::now();
    const at::Tensor first = generate(model, prompt, caches, count - 1);
    const CommLog log;
    const at::Tensor last =
        generate(model, first.narrow(1, count - 2, 1), caches, 1);
    const std::chrono::duration<double> time =
        std::chrono::steady_clock::now() - begin;
    served = {
        torch::cat({first, last}, 1), log.bytes(),
        static_cast<double>(prompt.size(0) * count) / time.count()};
  }
  return served;
}

// Logits of a whole prompt at once, on the mesh and without.
bool answers_alike(
    llama::Llama& sharded, llama::Llama& plain, const at::Tensor& prompt,
    const DeviceMesh& mesh) {
  const at::Tensor logits = full_tensor(
      sharded(distribute_tensor(prompt, mesh, {Replicate(), Replicate()})));
  print(answer(logits));
  return (logits - plain(prompt)).abs().max().item<double>() < 1e-12;
}

// Word by word after two prompts: rows along dp, heads along tp.
bool serves_alike(
    llama::Llama& sharded, llama::Llama& plain, const llama::Sizes& sizes,
    const at::Tensor& prompts, const DeviceMesh& mesh) {
  constexpr int64_t kWords = 12;
  const Served got = serve(
      sharded, sizes, distribute_tensor(prompts, mesh, {Shard(0), Replicate()}),
      [&](const std::vector<int64_t>& shape) {
        return zeros(shape, mesh, {Shard(0), Shard(1)}, at::kDouble);
      },
      kWords);
  const Served want = serve(
      plain, sizes, prompts,
      [](const std::vector<int64_t>& shape) {
        return torch::zeros(shape, at::kDouble);
      },
      kWords);
  const at::Tensor words = full_tensor(got.words);
  std::ostringstream text;
  for (int64_t i = 0; i < kWords; ++i) {
    text << ' ' << words[0][i].item<int64_t>();
  }
  print("then" + text.str());
  print(c10::str(
      "a word of each prompt sends ", got.bytes, " bytes, Megatron's ",
      megatron_bytes(sizes, prompts.size(0) / mesh.size(0), mesh.size(1))));
  print(c10::str(
      static_cast<int64_t>(got.words_per_second), " words/s, without ranks ",
      static_cast<int64_t>(want.words_per_second)));
  return at::equal(words, want.words);
}

void body(const std::string& folder, int64_t heads) {
  const llama::Sizes sizes = sizes_of(folder, heads);
  const torch::NoGradGuard no_grad;

  const int64_t n = world_size();
  const int64_t dp = n % 4 == 0 ? 2 : 1;
  const auto mesh = init_device_mesh(at::kCPU, {dp, n / dp}, {"dp", "tp"});
  llama::Llama sharded(sizes);
  sharded->to(at::kDouble);
  parallelize_module(sharded, mesh, plan(sizes));
  load(sharded, folder);
  print(c10::str(
      "model.layers.0.mlp.down_proj.weight: ",
      to_string(spec(sharded->model->layers[0]
                         ->as<llama::LayerImpl>()
                         ->mlp->down_proj->weight))));

  llama::Llama plain(sizes);
  plain->to(at::kDouble);
  load(plain, folder);
  const at::Tensor prompt =
      at::arange(1, 8, at::kLong).remainder(sizes.vocabulary).unsqueeze(0);
  const bool equal =
      answers_alike(sharded, plain, prompt, mesh) &&
      serves_alike(
          sharded, plain, sizes, torch::cat({prompt, prompt.flip(1)}), mesh);
  print(equal ? "equal to the model without ranks" : "differs");
}

}  // namespace

int main(int argc, char** argv) {
  const bool is_given = argc > 1;
  tessera::run([&] {
    const std::string folder =
        is_given ? argv[1]
                 : std::filesystem::temp_directory_path() /
                       ("tessera_llama_" + std::to_string(world_size()));
    if (!is_given) {
      write_random(folder);
    }
    body(folder, argc > 2 ? std::stol(argv[2]) : llama::Sizes().heads);
    init().communicator().barrier();
    if (!is_given && rank() == 0) {
      std::filesystem::remove_all(folder);
    }
  });
}
