#include <tensor/decompositions/table.h>

#include <algorithm>

namespace tessera::detail::inline tensor_layer {

// One function per family, defined in the family's source.
void add_softmax_decompositions(OpRegistry& ops);
void add_norm_decompositions(OpRegistry& ops);
void add_variance_decompositions(OpRegistry& ops);
void add_extreme_decompositions(OpRegistry& ops);
void add_scan_decompositions(OpRegistry& ops);
void add_layer_norm_decompositions(OpRegistry& ops);
void add_batch_norm_decompositions(OpRegistry& ops);
void add_batch_norm_update_decompositions(OpRegistry& ops);
void add_foreach_decompositions(OpRegistry& ops);
void add_loss_decompositions(OpRegistry& ops);
void add_nll_decompositions(OpRegistry& ops);
void add_comparison_decompositions(OpRegistry& ops);
void add_topk_decompositions(OpRegistry& ops);
void add_concat_decompositions(OpRegistry& ops);
void add_convolution_decompositions(OpRegistry& ops);
void add_shift_decompositions(OpRegistry& ops);
void add_transform_decompositions(OpRegistry& ops);
void add_attention_decompositions(OpRegistry& ops);
void add_picked_decompositions(OpRegistry& ops);
void add_pooling_decompositions(OpRegistry& ops);
void add_adaptive_pooling_decompositions(OpRegistry& ops);
void add_resampling_decompositions(OpRegistry& ops);
void add_group_norm_decompositions(OpRegistry& ops);
void add_trace_decompositions(OpRegistry& ops);
void add_column_decompositions(OpRegistry& ops);
void add_circular_decompositions(OpRegistry& ops);
void add_recurrent_decompositions(OpRegistry& ops);
void add_histogram_decompositions(OpRegistry& ops);
void add_selection_decompositions(OpRegistry& ops);

void add_decompositions(OpRegistry& ops) {
  add_softmax_decompositions(ops);
  add_norm_decompositions(ops);
  add_variance_decompositions(ops);
  add_extreme_decompositions(ops);
  add_scan_decompositions(ops);
  add_layer_norm_decompositions(ops);
  add_batch_norm_decompositions(ops);
  add_batch_norm_update_decompositions(ops);
  add_foreach_decompositions(ops);
  add_loss_decompositions(ops);
  add_nll_decompositions(ops);
  add_comparison_decompositions(ops);
  add_topk_decompositions(ops);
  add_concat_decompositions(ops);
  add_convolution_decompositions(ops);
  add_shift_decompositions(ops);
  add_transform_decompositions(ops);
  add_attention_decompositions(ops);
  add_picked_decompositions(ops);
  add_pooling_decompositions(ops);
  add_adaptive_pooling_decompositions(ops);
  add_resampling_decompositions(ops);
  add_group_norm_decompositions(ops);
  add_trace_decompositions(ops);
  add_column_decompositions(ops);
  add_circular_decompositions(ops);
  add_recurrent_decompositions(ops);
  add_histogram_decompositions(ops);
  add_selection_decompositions(ops);
}

bool shards_named_dim(const RuleCall& call) {
  const Operand& self = call.self();
  const std::vector<bool> named = named_dims(call, self.ndim());
  return std::any_of(
      self.placements->begin(), self.placements->end(),
      [&](const Placement& p) {
        return p.is_shard() && named[static_cast<size_t>(p.dim())];
      });
}

}  // namespace tessera::detail::inline tensor_layer
