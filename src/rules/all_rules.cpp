#include <rules/all_rules.h>

namespace tessera::detail::inline rules_layer {

void add_all_rules(RuleTable& table) {
  add_pointwise_rules(table);
  add_reduction_rules(table);
  add_matmul_rules(table);
  add_view_rules(table);
  add_concat_rules(table);
  add_indexing_rules(table);
  add_embedding_rules(table);
  add_normalization_rules(table);
  add_softmax_loss_rules(table);
  add_attention_rules(table);
  add_convolution_rules(table);
  add_pooling_rules(table);
  add_creation_rules(table);
  add_optimizer_rules(table);
  add_linalg_rules(table);
  add_sorting_rules(table);
  add_prims_rules(table);
}

}  // namespace tessera::detail::inline rules_layer
