// A small Llama whose modules have the names of Hugging Face's, so that its
// state_dict() has those of their files. Nothing in it knows of ranks. Example
// 09 and the tests share it.
#pragma once

#include <torch/torch.h>

#include <vector>

namespace llama {

struct Sizes {
  int64_t vocabulary = 96;
  int64_t width = 32;
  int64_t heads = 8;
  int64_t kv_heads = 4;
  int64_t hidden = 80;
  int64_t layers = 2;
  /// The last layer has a weight of its own, else that of the embedding.
  bool has_head = true;
};

inline torch::nn::Linear linear(int64_t from, int64_t to) {
  return torch::nn::Linear(torch::nn::LinearOptions(from, to).bias(false));
}

struct RmsNormImpl : torch::nn::Module {
  explicit RmsNormImpl(int64_t width)
      : weight(register_parameter("weight", torch::ones({width}))) {}
  at::Tensor forward(const at::Tensor& x) {
    return x * torch::rsqrt(x.square().mean(-1, true) + 1e-5) * weight;
  }
  at::Tensor weight;
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

struct RotaryImpl : torch::nn::Module {
  explicit RotaryImpl(int64_t head)
      : inv_freq(register_buffer(
            "inv_freq",
            torch::pow(
                1e4, -torch::arange(0, head, 2, torch::kDouble) / head))) {}
  Rotation forward(const at::Tensor& indices) {
    const at::Tensor positions = torch::ones_like(indices).cumsum(1) - 1;
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
  /// Each key and value serves several queries.
  at::Tensor repeat(const at::Tensor& x) const {
    return x.unsqueeze(2)
        .expand({x.size(0), kv_heads, heads / kv_heads, x.size(2), x.size(3)})
        .reshape({x.size(0), heads, x.size(2), x.size(3)});
  }
  at::Tensor forward(const at::Tensor& x, const Rotation& turn) {
    const at::Tensor q = turn(split(q_proj(x), heads));
    const at::Tensor k = turn(split(k_proj(x), kv_heads));
    const at::Tensor mixed = torch::scaled_dot_product_attention(
        q, repeat(k), repeat(split(v_proj(x), kv_heads)), {}, 0.0,
        /*is_causal=*/true);
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
    input_layernorm = register_module("input_layernorm", RmsNorm(sizes.width));
    post_attention_layernorm =
        register_module("post_attention_layernorm", RmsNorm(sizes.width));
  }
  at::Tensor forward(const at::Tensor& x, const Rotation& turn) {
    const at::Tensor y = x + self_attn(input_layernorm(x), turn);
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
    norm = register_module("norm", RmsNorm(sizes.width));
    rotary_emb =
        register_module("rotary_emb", Rotary(sizes.width / sizes.heads));
  }
  at::Tensor forward(const at::Tensor& indices) {
    const Rotation turn = rotary_emb(indices);
    at::Tensor x = embed_tokens(indices);
    for (const auto& layer : *layers) {
      x = layer->as<LayerImpl>()->forward(x, turn);
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
  /// Maps indices [batch, length] to logits [batch, length, vocabulary].
  at::Tensor forward(const at::Tensor& indices) {
    const at::Tensor x = model(indices);
    return lm_head ? lm_head(x) : torch::linear(x, model->embed_tokens->weight);
  }
  Model model = nullptr;
  torch::nn::Linear lm_head = nullptr;
};
TORCH_MODULE(Llama);

}  // namespace llama
