// A small GPT as a user would write it: nothing in it knows of ranks. The
// examples, the demo, the training benchmark and the tests share it.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

namespace gpt {

struct Sizes {
  int64_t vocabulary = 12;
  int64_t length = 6;
  int64_t width = 16;
  int64_t heads = 4;
  int64_t hidden = 32;
  int64_t layers = 2;
};

struct AttentionImpl : torch::nn::Module {
  explicit AttentionImpl(const Sizes& sizes) : heads(sizes.heads) {
    const int64_t width = sizes.width;
    q = register_module("q", torch::nn::Linear(width, width));
    k = register_module("k", torch::nn::Linear(width, width));
    v = register_module("v", torch::nn::Linear(width, width));
    o = register_module("o", torch::nn::Linear(width, width));
  }
  at::Tensor split(const at::Tensor& x) const {
    return x.view({x.size(0), x.size(1), heads, x.size(2) / heads})
        .transpose(1, 2);
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor queries = split(q(x));
    const at::Tensor keys = split(k(x));
    const at::Tensor values = split(v(x));
    const at::Tensor mixed = torch::scaled_dot_product_attention(
        queries, keys, values, {}, 0.0, /*is_causal=*/true);
    return o(mixed.transpose(1, 2).reshape(x.sizes()));
  }
  int64_t heads;
  torch::nn::Linear q = nullptr, k = nullptr, v = nullptr, o = nullptr;
};
TORCH_MODULE(Attention);

struct MlpImpl : torch::nn::Module {
  explicit MlpImpl(const Sizes& sizes) {
    up = register_module("up", torch::nn::Linear(sizes.width, sizes.hidden));
    down =
        register_module("down", torch::nn::Linear(sizes.hidden, sizes.width));
  }
  at::Tensor forward(const at::Tensor& x) { return down(torch::gelu(up(x))); }
  torch::nn::Linear up = nullptr, down = nullptr;
};
TORCH_MODULE(Mlp);

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(const Sizes& sizes) {
    const torch::nn::LayerNormOptions norm({sizes.width});
    norm1 = register_module("norm1", torch::nn::LayerNorm(norm));
    attention = register_module("attention", Attention(sizes));
    norm2 = register_module("norm2", torch::nn::LayerNorm(norm));
    mlp = register_module("mlp", Mlp(sizes));
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = x + attention(norm1(x));
    return y + mlp(norm2(y));
  }
  torch::nn::LayerNorm norm1 = nullptr, norm2 = nullptr;
  Attention attention = nullptr;
  Mlp mlp = nullptr;
};
TORCH_MODULE(Block);

struct GptImpl : torch::nn::Module {
  explicit GptImpl(const Sizes& sizes = {}) {
    tokens = register_module(
        "tokens", torch::nn::Embedding(sizes.vocabulary, sizes.width));
    positions = register_parameter(
        "positions", torch::randn({sizes.length, sizes.width}));
    for (int64_t i = 0; i < sizes.layers; ++i) {
      blocks->push_back(Block(sizes));
    }
    register_module("blocks", blocks);
    norm = register_module(
        "norm",
        torch::nn::LayerNorm(torch::nn::LayerNormOptions({sizes.width})));
    head = register_module(
        "head", torch::nn::Linear(
                    torch::nn::LinearOptions(sizes.width, sizes.vocabulary)
                        .bias(false)));
  }
  /// Maps indices [batch, length] to logits [batch, length, vocabulary].
  at::Tensor forward(const at::Tensor& indices) {
    at::Tensor x = tokens(indices) + positions;
    for (const auto& block : *blocks) {
      x = run_block(*block->as<BlockImpl>(), x);
    }
    return head(norm(x));
  }
  /// How forward() runs a block: a program may do something around it.
  std::function<at::Tensor(BlockImpl&, const at::Tensor&)> run_block =
      [](BlockImpl& block, const at::Tensor& x) { return block.forward(x); };
  torch::nn::Embedding tokens = nullptr;
  at::Tensor positions;
  torch::nn::ModuleList blocks;
  torch::nn::LayerNorm norm = nullptr;
  torch::nn::Linear head = nullptr;
};
TORCH_MODULE(Gpt);

}  // namespace gpt
