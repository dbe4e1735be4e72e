// What a ready-made layer is to a parallel style.
#pragma once

#include <cstdint>
#include <optional>

#include <tessera/parallel/parallel_style.h>

namespace tessera::detail::inline parallel_layer {

/// Its parameters, and the dims of weight, input and result that belong to its
/// inputs and its outputs.
struct Layer {
  at::Tensor weight;
  at::Tensor bias;
  int64_t weight_out = 0;
  int64_t weight_in = 1;
  int64_t input_dim = -1;
  int64_t output_dim = -1;
  /// Where the input is indices, which every rank needs replicated.
  bool is_lookup = false;
  bool can_be_sharded_by_inputs = true;
};

/// Returns nothing for modules that are no Linear, Embedding or Conv.
std::optional<Layer> layer_of(const torch::nn::Module& module);
/// The same, and throws for them.
Layer layer_at(const StyledModule& target);

}  // namespace tessera::detail::inline parallel_layer
