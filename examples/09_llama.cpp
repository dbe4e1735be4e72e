// A Llama in the files of Hugging Face, read straight into a model on a mesh:
// each rank reads its own part of every weight. Prints what the model says
// after a prompt, and that the same model without ranks says it too.
//
//   build/bin/tessera run -n 4 -- build/bin/09_llama FOLDER [HEADS]
//
// FOLDER has model.safetensors, or model-00001-of-00002.safetensors ... and
// model.safetensors.index.json. Without one, the example makes one.
#include <algorithm>
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

ParallelPlan plan(const llama::Sizes& sizes) {
  ParallelPlan plan{
      {"model.embed_tokens", RowwiseParallel()},
      {"model.layers.*.self_attn.[qkv]_proj", ColwiseParallel()},
      {"model.layers.*.self_attn.o_proj", RowwiseParallel()},
      {"model.layers.*.mlp.gate_proj", ColwiseParallel()},
      {"model.layers.*.mlp.up_proj", ColwiseParallel()},
      {"model.layers.*.mlp.down_proj", RowwiseParallel()}};
  if (sizes.has_head) {  // else logits come from the embedding's weight
    plan.emplace_back("lm_head", ColwiseParallel());
  }
  return plan;
}

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

void body(const std::string& folder, int64_t heads) {
  const llama::Sizes sizes = sizes_of(folder, heads);
  const at::Tensor prompt =
      at::arange(1, 8, at::kLong).remainder(sizes.vocabulary).unsqueeze(0);
  const torch::NoGradGuard no_grad;

  const int64_t n = world_size();
  const int64_t dp = n % 4 == 0 ? 2 : 1;
  const auto mesh = init_device_mesh(at::kCPU, {dp, n / dp}, {"dp", "tp"});
  llama::Llama sharded(sizes);
  sharded->to(at::kDouble);
  parallelize_module(sharded, mesh, plan(sizes));
  load(sharded, folder);
  const at::Tensor logits =
      sharded(distribute_tensor(prompt, mesh, {Replicate(), Replicate()}));
  const std::string got = answer(full_tensor(logits));

  llama::Llama plain(sizes);
  plain->to(at::kDouble);
  load(plain, folder);
  const at::Tensor want = plain(prompt);
  const double difference =
      (full_tensor(logits) - want).abs().max().item<double>();
  print(c10::str(
      "model.layers.0.mlp.down_proj.weight: ",
      to_string(spec(sharded->model->layers[0]
                         ->as<llama::LayerImpl>()
                         ->mlp->down_proj->weight))));
  print(got);
  print(difference < 1e-12 ? "equal to the model without ranks" : "differs");
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
