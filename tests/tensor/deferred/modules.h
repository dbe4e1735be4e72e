// Modules and initialisers whose deferred values tests compare.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <harness/sharded_test.h>

namespace tessera::testing {

using Module = torch::nn::Module;
struct ModuleCase {
  std::string name;
  std::function<std::shared_ptr<Module>()> make;
};

// A module of loose tensors, as a program's own modules make them.
struct OwnModule : Module {
  void add(const std::string& name, at::Tensor t) {
    register_parameter(name, std::move(t), /*requires_grad=*/false);
  }
  void keep(const std::string& name, at::Tensor t) {
    register_buffer(name, std::move(t));
  }
};

template <class Holder, class... Arguments>
ModuleCase layer(const std::string& name, const Arguments&... arguments) {
  return {name, [=] { return Holder(arguments...).ptr(); }};
}

inline ModuleCase own(
    const std::string& name, const std::function<void(OwnModule&)>& fill) {
  return {name, [fill] {
            auto made = std::make_shared<OwnModule>();
            const at::NoGradGuard no_grad;
            fill(*made);
            return made;
          }};
}

/// Returns all layers of torch::nn that have parameters or buffers.
inline std::vector<ModuleCase> layers() {
  namespace nn = torch::nn;
  return {
      layer<nn::Linear>("Linear", 5, 7),
      layer<nn::Bilinear>("Bilinear", nn::BilinearOptions(3, 4, 5)),
      layer<nn::Conv1d>("Conv1d", nn::Conv1dOptions(4, 6, 3)),
      layer<nn::Conv2d>("Conv2d", nn::Conv2dOptions(4, 6, 3).groups(2)),
      layer<nn::Conv3d>("Conv3d", nn::Conv3dOptions(2, 5, 2)),
      layer<nn::ConvTranspose1d>(
          "ConvTranspose1d", nn::ConvTranspose1dOptions(4, 6, 3)),
      layer<nn::ConvTranspose2d>(
          "ConvTranspose2d", nn::ConvTranspose2dOptions(4, 6, 3)),
      layer<nn::ConvTranspose3d>(
          "ConvTranspose3d", nn::ConvTranspose3dOptions(2, 3, 2)),
      layer<nn::Embedding>("Embedding", nn::EmbeddingOptions(9, 5)),
      layer<nn::Embedding>(
          "Embedding with padding", nn::EmbeddingOptions(9, 5).padding_idx(6)),
      layer<nn::EmbeddingBag>("EmbeddingBag", nn::EmbeddingBagOptions(7, 5)),
      layer<nn::LayerNorm>("LayerNorm", nn::LayerNormOptions({5, 3})),
      layer<nn::GroupNorm>("GroupNorm", nn::GroupNormOptions(2, 6)),
      layer<nn::BatchNorm1d>("BatchNorm1d", 6),
      layer<nn::BatchNorm2d>("BatchNorm2d", 6),
      layer<nn::BatchNorm3d>("BatchNorm3d", 6),
      layer<nn::InstanceNorm1d>(
          "InstanceNorm1d",
          nn::InstanceNorm1dOptions(6).affine(true).track_running_stats(true)),
      layer<nn::InstanceNorm2d>(
          "InstanceNorm2d", nn::InstanceNorm2dOptions(6).affine(true)),
      layer<nn::InstanceNorm3d>(
          "InstanceNorm3d", nn::InstanceNorm3dOptions(6).affine(true)),
      layer<nn::PReLU>("PReLU", nn::PReLUOptions().num_parameters(5)),
      layer<nn::RNN>("RNN", nn::RNNOptions(4, 3)),
      layer<nn::LSTM>(
          "LSTM", nn::LSTMOptions(4, 3).num_layers(2).bidirectional(true)),
      layer<nn::GRU>("GRU", nn::GRUOptions(4, 3)),
      layer<nn::RNNCell>("RNNCell", nn::RNNCellOptions(4, 3)),
      layer<nn::LSTMCell>("LSTMCell", nn::LSTMCellOptions(4, 3)),
      layer<nn::GRUCell>("GRUCell", nn::GRUCellOptions(4, 3)),
      layer<nn::MultiheadAttention>(
          "MultiheadAttention",
          nn::MultiheadAttentionOptions(8, 2).add_bias_kv(true)),
      layer<nn::Transformer>(
          "Transformer", nn::TransformerOptions(4, 2, 1, 1).dim_feedforward(6)),
      layer<nn::AdaptiveLogSoftmaxWithLoss>(
          "AdaptiveLogSoftmaxWithLoss",
          nn::AdaptiveLogSoftmaxWithLossOptions(16, 12, {4, 8})),
  };
}

inline at::Tensor made(at::IntArrayRef sizes) {
  return torch::empty(sizes);
}

/// Returns the initialisers of torch::nn::init, and what programs write by
/// hand. None of these needs a tensor whole.
inline std::vector<ModuleCase> initialisers_by_element() {
  namespace init = torch::nn::init;
  using at::indexing::Slice;
  return {
      own("kaiming",
          [](auto& m) {
            m.add("a", init::kaiming_uniform_(made({7, 5})));
            m.add("b", init::kaiming_normal_(made({6, 4, 3})));
          }),
      own("xavier",
          [](auto& m) {
            m.add("a", init::xavier_uniform_(made({7, 5})));
            m.add("b", init::xavier_normal_(made({6, 4, 3})));
          }),
      own("constants",
          [](auto& m) {
            m.add("a", init::constant_(made({7, 5}), 3));
            m.add("b", init::ones_(made({5})));
            m.add("c", torch::full({3, 4}, 2.5));
            m.add("d", torch::ones({6}, torch::kDouble) * 0.1);
          }),
      own("dirac_",
          [](auto& m) {
            m.add("a", init::dirac_(made({5, 4, 3})));
            m.add("b", init::dirac_(made({4, 6, 3, 3})));
          }),
      own("eye_",
          [](auto& m) {
            m.add("a", init::eye_(made({6, 8})));
            m.add("b", init::eye_(made({9, 4}).normal_()).mul_(3));
            m.add("c", torch::eye(7));
            m.add("d", torch::eye(3, 11, torch::kDouble));
            const at::Tensor e = made({9, 7}).normal_();
            init::eye_(e.narrow(0, 2, 5));
            m.add("e", e);
          }),
      own("truncated normal",
          [](auto& m) {
            const at::Tensor a = made({7, 6});
            a.uniform_(-0.9, 0.9).erfinv_().mul_(0.02 * 1.41421356).add_(0.1);
            m.add("a", a.clamp_(-0.03, 0.12));
          }),
      own("written twice",
          [](auto& m) {
            const at::Tensor a = made({7, 6});
            m.add("a", a.normal_().uniform_().mul_(2).normal_(0, 0.1));
          }),
      own("slices",
          [](auto& m) {
            const at::Tensor a = made({9, 6}).normal_();
            a.index({Slice(2, 5)}).fill_(1);
            a.index({Slice(), Slice(1, 3)}).mul_(10);
            a.index({Slice(3, 9), Slice(4, 6)}).zero_();
            a[8].normal_(5, 0.1);
            a.select(1, 0).add_(100);
            a.narrow(0, 1, 6).t().narrow(0, 2, 3).uniform_(7, 8);
            a[4][5] = 42;
            m.add("a", a);
          }),
      own("copies",
          [](auto& m) {
            const at::Tensor a = made({6, 4}).normal_();
            m.add("a", a);
            m.add("b", made({6, 4}).copy_(a));
            a.mul_(2);
            m.add("c", made({5, 6, 4}).copy_(a));
            const at::Tensor d = made({8, 4}).zero_();
            d.narrow(0, 1, 6).copy_(a);
            m.add("d", d);
            m.add("e", a.clone().add_(1));
          }),
      own("results",
          [](auto& m) {
            m.add("a", torch::randn({7, 4}) * 0.02 + torch::rand({7, 4}));
            m.add("b", torch::rand({3, 4}, torch::kDouble).log().neg());
            m.add("c", torch::randn({6, 3}).to(torch::kBFloat16));
            m.keep("d", torch::ones({7, 7}).triu(1));
            m.keep("e", torch::ones({5, 7}, torch::kBool).tril());
            m.add(
                "f", torch::where(
                         torch::rand({6, 5}) < 0.5, torch::randn({6, 5}),
                         torch::zeros({6, 5})));
          }),
      own("likes",
          [](auto& m) {
            const at::Tensor a = made({7, 5});
            m.add("a", at::zeros_like(a));
            m.add("b", at::rand_like(a));
            m.add("c", at::randn_like(a).to(torch::kHalf));
            m.add("d", a.new_full({4, 3}, 2));
            m.add("e", a.new_empty({4, 3}).normal_());
            m.add("f", at::full_like(a, 3));
            m.keep("g", at::randint_like(a, 0, 9));
            m.keep("h", torch::randint(0, 100, {9, 2}));
          }),
      own("random operators",
          [](auto& m) {
            m.add("a", made({6, 5}).exponential_(2));
            m.add("b", made({6, 5}).cauchy_());
            m.add("c", made({6, 5}).log_normal_());
            m.add("d", made({6, 5}).geometric_(0.2));
            m.add("e", made({6, 5}).bernoulli_(0.3));
            m.keep("f", torch::empty({6, 5}, torch::kLong).random_(0, 50));
            const at::Tensor g = made({6, 5});
            g.view({-1}).normal_();
            m.add("g", g);
          }),
      own("strides",
          [](auto& m) {
            m.add("a", torch::empty_strided({6, 4}, {1, 6}).normal_());
            m.add(
                "b", torch::empty(
                         {4, 3, 2, 5}, at::TensorOptions().memory_format(
                                           at::MemoryFormat::ChannelsLast))
                         .uniform_());
          }),
  };
}

/// Returns initialisers that need one tensor whole, and others that are rare.
inline std::vector<ModuleCase> initialisers_of_whole() {
  namespace init = torch::nn::init;
  return {
      own("orthogonal_",
          [](auto& m) {
            m.add("a", init::orthogonal_(made({7, 5})));
            m.add("b", init::orthogonal_(made({4, 9}), 2.0));
            m.add("c", init::orthogonal_(made({6, 2, 2})));
          }),
      own("sparse_",
          [](auto& m) {
            m.add("a", init::sparse_(made({9, 4}), 0.4));
          }),
      own("normalised",
          [](auto& m) {
            const at::Tensor a = torch::randn({7, 5});
            a.div_(a.norm(2, 1, true));
            m.add("a", a);
            m.add("b", torch::randn({6, 4}).softmax(0));
            m.add("c", torch::randn({6, 4}).cumsum(0).mul_(2));
          }),
      own("sequences",
          [](auto& m) {
            m.keep("a", torch::arange(9));
            m.keep("b", torch::linspace(0, 1, 7));
            m.keep("c", torch::randperm(11));
            const at::Tensor angle = torch::outer(
                torch::arange(6).to(torch::kFloat),
                torch::pow(100.0, -torch::arange(4) / 4.0));
            m.keep(
                "d", torch::stack({angle.sin(), angle.cos()}, -1)
                         .flatten(1)
                         .clone());
            m.keep(
                "e", torch::cat({torch::ones({3, 2}), torch::randn({2, 2})}));
            m.keep("f", torch::tensor({1.5, 2.5, 3.5}));
            m.keep("g", torch::eye(5));
          }),
      own("transposed",
          [](auto& m) {
            const at::Tensor a = torch::randn({6, 4});
            m.add("a", a.t().contiguous());
            m.add("b", made({4, 6}).copy_(a.t()));
            m.add("c", a.reshape({3, 8}).clone());
            const at::Tensor d = torch::randn({4, 6});
            d.t_();
            m.add("d", d);
            m.add(
                "e", torch::randn({4, 4}).masked_fill_(
                         torch::eye(4).to(torch::kBool), 9));
          }),
  };
}

}  // namespace tessera::testing
