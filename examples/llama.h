// A small Llama whose modules have the names of Hugging Face's, so that its
// state_dict() has those of their files. Nothing in the modules knows of ranks;
// plan() cuts them. Examples 09 and 13 and the tests share it.
#pragma once

#include <tessera/parallel/parallelize_module.h>
#include <torch/torch.h>

#include <functional>
#include <utility>
#include <vector>

namespace llama {

struct Sizes {
  int64_t vocabulary = 96;
  int64_t width = 32;
  int64_t heads = 8;
  int64_t kv_heads = 4;
  int64_t hidden = 80;
  int64_t layers = 2;
  double rope_theta = 1e4;
  double norm_eps = 1e-5;
  /// The last layer has a weight of its own, else that of the embedding.
  bool has_head = true;
};

inline torch::nn::Linear linear(int64_t from, int64_t to) {
  return torch::nn::Linear(torch::nn::LinearOptions(from, to).bias(false));
}

struct RmsNormImpl : torch::nn::Module {
  explicit RmsNormImpl(const Sizes& sizes)
      : weight(register_parameter("weight", torch::ones({sizes.width}))),
        eps(sizes.norm_eps) {}
  at::Tensor forward(const at::Tensor& x) {
    return x * torch::rsqrt(x.square().mean(-1, true) + eps) * weight;
  }
  at::Tensor weight;
  double eps;
};
TORCH_MODULE(RmsNorm);

/// Cosines and sines of the angles by which a position turns a head.
struct Rotation {
  at::Tensor cos, sin;  // [batch, 1, length, width of a head]

  at::Tensor operator()(const at::Tensor& x) const {
    const std::vector<at::Tensor> halves = x.chunk(2, -1);
    return x * cos + torch::cat({-halves[1], halves[0]}, -1) * sin;
  }
};

/// The keys and values of the words so far, of one layer. New ones are written
/// in place: on a mesh each rank writes those of its heads.
struct Cache {
  at::Tensor keys, values;  // [batch, kv_heads, most words, width of a head]
  int64_t length = 0;       // words so far

  std::pair<at::Tensor, at::Tensor> extend(
      const at::Tensor& k, const at::Tensor& v) {
    keys.narrow(2, length, k.size(2)).copy_(k);
    values.narrow(2, length, v.size(2)).copy_(v);
    length += k.size(2);
    return {keys.narrow(2, 0, length), values.narrow(2, 0, length)};
  }
};
using Caches = std::vector<Cache>;

/// One cache per layer; `zeros` makes a tensor of a shape, and so says where
/// they are.
inline Caches make_caches(
    const Sizes& sizes, int64_t batch, int64_t most_words,
    const std::function<at::Tensor(std::vector<int64_t>)>& zeros) {
  const std::vector<int64_t> shape = {
      batch, sizes.kv_heads, most_words, sizes.width / sizes.heads};
  Caches caches;
  for (int64_t i = 0; i < sizes.layers; ++i) {
    caches.push_back({zeros(shape), zeros(shape)});
  }
  return caches;
}

struct RotaryImpl : torch::nn::Module {
  explicit RotaryImpl(const Sizes& sizes) {
    const int64_t head = sizes.width / sizes.heads;
    inv_freq = register_buffer(
        "inv_freq", torch::pow(
                        sizes.rope_theta,
                        -torch::arange(0, head, 2, torch::kDouble) / head));
  }
  /// `first` words came before.
  Rotation forward(const at::Tensor& indices, int64_t first) {
    const at::Tensor positions =
        torch::ones_like(indices).cumsum(1) + (first - 1);
    const at::Tensor angles =
        positions.unsqueeze(-1).to(inv_freq.scalar_type()) * inv_freq;
    const at::Tensor both = torch::cat({angles, angles}, -1).unsqueeze(1);
    return {both.cos(), both.sin()};
  }
  at::Tensor inv_freq;
};
TORCH_MODULE(Rotary);

struct AttentionImpl : torch::nn::Module {
  explicit AttentionImpl(const Sizes& sizes)
      : heads(sizes.heads), kv_heads(sizes.kv_heads) {
    const int64_t head = sizes.width / heads;
    q_proj = register_module("q_proj", linear(sizes.width, heads * head));
    k_proj = register_module("k_proj", linear(sizes.width, kv_heads * head));
    v_proj = register_module("v_proj", linear(sizes.width, kv_heads * head));
    o_proj = register_module("o_proj", linear(heads * head, sizes.width));
  }
  static at::Tensor split(const at::Tensor& x, int64_t count) {
    return x.view({x.size(0), x.size(1), count, x.size(2) / count})
        .transpose(1, 2);
  }
  at::Tensor forward(const at::Tensor& x, const Rotation& turn, Cache* cache) {
    const at::Tensor q = turn(split(q_proj(x), heads));
    at::Tensor k = turn(split(k_proj(x), kv_heads));
    at::Tensor v = split(v_proj(x), kv_heads);
    if (cache != nullptr) {
      std::tie(k, v) = cache->extend(k, v);
    }
    // Each key and value serves several queries.
    const at::Tensor mixed = torch::scaled_dot_product_attention(
        q, k, v, {}, 0.0, /*is_causal=*/x.size(1) > 1, std::nullopt,
        /*enable_gqa=*/true);
    return o_proj(mixed.transpose(1, 2).reshape(x.sizes()));
  }
  int64_t heads, kv_heads;
  torch::nn::Linear q_proj = nullptr, k_proj = nullptr, v_proj = nullptr,
                    o_proj = nullptr;
};
TORCH_MODULE(Attention);

struct MlpImpl : torch::nn::Module {
  explicit MlpImpl(const Sizes& sizes) {
    gate_proj = register_module("gate_proj", linear(sizes.width, sizes.hidden));
    up_proj = register_module("up_proj", linear(sizes.width, sizes.hidden));
    down_proj = register_module("down_proj", linear(sizes.hidden, sizes.width));
  }
  at::Tensor forward(const at::Tensor& x) {
    return down_proj(torch::silu(gate_proj(x)) * up_proj(x));
  }
  torch::nn::Linear gate_proj = nullptr, up_proj = nullptr, down_proj = nullptr;
};
TORCH_MODULE(Mlp);

struct LayerImpl : torch::nn::Module {
  explicit LayerImpl(const Sizes& sizes) {
    self_attn = register_module("self_attn", Attention(sizes));
    mlp = register_module("mlp", Mlp(sizes));
    input_layernorm = register_module("input_layernorm", RmsNorm(sizes));
    post_attention_layernorm =
        register_module("post_attention_layernorm", RmsNorm(sizes));
  }
  at::Tensor forward(const at::Tensor& x, const Rotation& turn, Cache* cache) {
    const at::Tensor y = x + self_attn(input_layernorm(x), turn, cache);
    return y + mlp(post_attention_layernorm(y));
  }
  Attention self_attn = nullptr;
  Mlp mlp = nullptr;
  RmsNorm input_layernorm = nullptr, post_attention_layernorm = nullptr;
};
TORCH_MODULE(Layer);

struct ModelImpl : torch::nn::Module {
  explicit ModelImpl(const Sizes& sizes) {
    embed_tokens = register_module(
        "embed_tokens", torch::nn::Embedding(sizes.vocabulary, sizes.width));
    for (int64_t i = 0; i < sizes.layers; ++i) {
      layers->push_back(Layer(sizes));
    }
    register_module("layers", layers);
    norm = register_module("norm", RmsNorm(sizes));
    rotary_emb = register_module("rotary_emb", Rotary(sizes));
  }
  at::Tensor forward(const at::Tensor& indices, Caches* caches) {
    const int64_t first = caches == nullptr ? 0 : caches->at(0).length;
    const Rotation turn = rotary_emb(indices, first);
    at::Tensor x = embed_tokens(indices);
    for (size_t i = 0; i < layers->size(); ++i) {
      Cache* cache = caches == nullptr ? nullptr : &caches->at(i);
      x = layers->ptr<LayerImpl>(i)->forward(x, turn, cache);
    }
    return norm(x);
  }
  torch::nn::Embedding embed_tokens = nullptr;
  torch::nn::ModuleList layers;
  RmsNorm norm = nullptr;
  Rotary rotary_emb = nullptr;
};
TORCH_MODULE(Model);

struct LlamaImpl : torch::nn::Module {
  explicit LlamaImpl(const Sizes& sizes = {}) {
    model = register_module("model", Model(sizes));
    if (sizes.has_head) {
      lm_head =
          register_module("lm_head", linear(sizes.width, sizes.vocabulary));
    }
  }
  /// Maps indices [batch, length] to logits [batch, length, vocabulary]. With
  /// caches the words follow those that these have seen.
  at::Tensor forward(const at::Tensor& indices, Caches* caches = nullptr) {
    const at::Tensor x = model->forward(indices, caches);
    return lm_head ? lm_head(x) : torch::linear(x, model->embed_tokens->weight);
  }
  Model model = nullptr;
  torch::nn::Linear lm_head = nullptr;
};
TORCH_MODULE(Llama);

inline tessera::ParallelPlan plan(const Sizes& sizes) {
  using namespace tessera;
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

/// The likeliest words after a prompt [batch, length], one by one:
/// [batch, count].
inline at::Tensor generate(
    Llama& model, const at::Tensor& prompt, Caches& caches, int64_t count) {
  const torch::NoGradGuard no_grad;
  std::vector<at::Tensor> words;
  at::Tensor logits = model(prompt, &caches);
  for (int64_t i = 0; i < count; ++i) {
    words.push_back(logits.narrow(1, logits.size(1) - 1, 1).argmax(-1));
    if (i + 1 < count) {
      logits = model(words.back(), &caches);
    }
  }
  return torch::cat(words, 1);
}

}  // namespace llama
