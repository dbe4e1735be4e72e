#include <c10/util/Exception.h>
#include <parallel/layer_kinds.h>
#include <tessera/parallel/parallelize_module.h>

namespace tessera {

void RowwiseParallel::apply(StyledModule& target) const {
  const detail::Layer layer = detail::layer_at(target);
  TORCH_CHECK_NOT_IMPLEMENTED(
      layer.can_be_sharded_by_inputs, target.where(),
      ": a convolution in groups has no weights between all inputs and "
      "outputs; use ColwiseParallel");
  const Placement needed =
      layer.is_lookup ? Replicate() : Shard(layer.input_dim);
  target.shard(
      "weight", layer.weight, Shard(layer.weight_in),
      CallLayouts{
          .plain_input = input_layouts.value_or(needed),
          .input = needed,
          .output = output_layouts});
  if (layer.bias.defined()) {
    target.shard("bias", layer.bias, Replicate());
  }
}

}  // namespace tessera
