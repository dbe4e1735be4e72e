// The rules of LibTorch's operators, one function per family.
#pragma once

#include <tessera/rules/rule_table.h>

namespace tessera::detail::inline rules_layer {

/// What rows of several families are made of.
inline const Cell kR;
inline const Cell kSum = Cell::partial(ReduceOp::kSum);

/// Adds every family below.
void add_all_rules(RuleTable& table);

void add_pointwise_rules(RuleTable& t);
void add_reduction_rules(RuleTable& t);
void add_matmul_rules(RuleTable& t);
void add_view_rules(RuleTable& t);
void add_concat_rules(RuleTable& t);
void add_indexing_rules(RuleTable& t);
void add_embedding_rules(RuleTable& t);
void add_normalization_rules(RuleTable& t);
void add_softmax_loss_rules(RuleTable& t);
void add_attention_rules(RuleTable& t);
void add_convolution_rules(RuleTable& t);
void add_pooling_rules(RuleTable& t);
void add_creation_rules(RuleTable& t);
void add_optimizer_rules(RuleTable& t);
void add_linalg_rules(RuleTable& t);
void add_sorting_rules(RuleTable& t);
void add_prims_rules(RuleTable& t);

}  // namespace tessera::detail::inline rules_layer
