#include <parallel/layer_kinds.h>

#include <c10/util/Exception.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

namespace tessera::detail::inline parallel_layer {

namespace {

using torch::nn::Module;

std::optional<Layer> conv_layer(const Module& module) {
  const auto make = [](const auto& conv, int64_t spatial) {
    return Layer{
        .weight = conv.weight,
        .bias = conv.bias,
        .input_dim = -spatial - 1,
        .output_dim = -spatial - 1,
        .can_be_sharded_by_inputs = conv.options.groups() == 1};
  };
  if (const auto* conv = module.as<torch::nn::Conv1dImpl>()) {
    return make(*conv, 1);
  }
  if (const auto* conv = module.as<torch::nn::Conv2dImpl>()) {
    return make(*conv, 2);
  }
  if (const auto* conv = module.as<torch::nn::Conv3dImpl>()) {
    return make(*conv, 3);
  }
  return std::nullopt;
}

}  // namespace

std::optional<Layer> layer_of(const Module& module) {
  if (const auto* linear = module.as<torch::nn::LinearImpl>()) {
    return Layer{.weight = linear->weight, .bias = linear->bias};
  }
  if (const auto* embedding = module.as<torch::nn::EmbeddingImpl>()) {
    return Layer{
        .weight = embedding->weight,
        .bias = {},
        .weight_out = 1,
        .weight_in = 0,
        .is_lookup = true};
  }
  return conv_layer(module);
}

Layer layer_at(const StyledModule& target) {
  const std::optional<Layer> layer = layer_of(target.module());
  TORCH_CHECK_NOT_IMPLEMENTED(
      layer.has_value(), target.where(),
      ": the style serves Linear, Embedding and Conv, ColwiseParallel also "
      "MultiheadAttention; got ",
      target.module().name(),
      "; name its layers, or its parameters with ParameterParallel");
  return *layer;
}

}  // namespace tessera::detail::inline parallel_layer
