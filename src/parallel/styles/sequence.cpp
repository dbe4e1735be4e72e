#include <c10/util/Exception.h>
#include <parallel/layer_kinds.h>
#include <tessera/parallel/parallelize_module.h>
#include <torch/nn/module.h>

namespace tessera {

void SequenceParallel::apply(StyledModule& target) const {
  const torch::nn::Module& module = target.module();
  TORCH_CHECK_NOT_IMPLEMENTED(
      !detail::layer_of(module), target.where(),
      ": the style keeps a layer whole and is for norms; got ", module.name(),
      "; use ColwiseParallel or RowwiseParallel");
  const auto parameters = module.named_parameters(/*recurse=*/false);
  TORCH_CHECK_VALUE(
      !parameters.is_empty(), target.where(),
      ": the module has no parameters of its own; got ", module.name(),
      "; name the norms inside of it");
  const Placement by_sequence = Shard(sequence_dim);
  for (const auto& parameter : parameters) {
    target.shard(
        parameter.key(), Replicate(),
        CallLayouts{
            .plain_input = by_sequence, .input = by_sequence, .scales = true});
  }
}

}  // namespace tessera
