#include <c10/util/Exception.h>
#include <parallel/layer_kinds.h>
#include <tessera/parallel/parallelize_module.h>
#include <torch/nn/modules/activation.h>

namespace tessera {

namespace {

// Queries, keys and values lie one after the other in the packed projection, so
// each rank takes its heads' rows of each of the three.
void shard_heads(
    StyledModule& target, const torch::nn::MultiheadAttentionImpl& attention,
    const ColwiseParallel& style) {
  const int64_t heads = attention.options.num_heads();
  TORCH_CHECK_VALUE(
      heads % target.ranks() == 0, target.where(),
      ": the number of heads must be a multiple of the ranks; got ", heads,
      " heads and ", target.ranks(), " ranks; use fewer ranks");
  TORCH_CHECK_NOT_IMPLEMENTED(
      attention._qkv_same_embed_dim && !attention.bias_k.defined(),
      target.where(),
      ": only the packed projection without added keys is served; got "
      "kdim, vdim or add_bias_kv; name its projections with "
      "ParameterParallel");
  TORCH_CHECK_NOT_IMPLEMENTED(
      !style.output_layouts, target.where(),
      ": the packed projection's results are queries, keys and values, cut "
      "by heads; got output_layouts; give them to \"out_proj\"");
  const Placement packed = StridedShard(0, 3);
  target.shard(
      "in_proj_weight", attention.in_proj_weight, packed,
      CallLayouts{.plain_input = style.input_layouts, .input = Replicate()});
  if (attention.in_proj_bias.defined()) {
    target.shard("in_proj_bias", attention.in_proj_bias, packed);
  }
}

}  // namespace

void ColwiseParallel::apply(StyledModule& target) const {
  if (const auto* attention =
          target.module().as<torch::nn::MultiheadAttentionImpl>()) {
    return shard_heads(target, *attention, *this);
  }
  const detail::Layer layer = detail::layer_at(target);
  target.shard(
      "weight", layer.weight, Shard(layer.weight_out),
      CallLayouts{
          .plain_input = input_layouts,
          .input = Replicate(),
          .output = output_layouts.value_or(Shard(layer.output_dim))});
  if (layer.bias.defined()) {
    target.shard("bias", layer.bias, Shard(0));
  }
}

}  // namespace tessera
