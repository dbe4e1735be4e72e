// The families of decompositions; each file adds its operators to the table.
#pragma once

#include <vector>

#include <tensor/call/decomposition.h>

namespace tessera::detail::inline tensor_layer {

using Decompositions = std::vector<Decomposition>;

void add_softmax_decompositions(Decompositions& all);
void add_norm_decompositions(Decompositions& all);
void add_variance_decompositions(Decompositions& all);
void add_extreme_decompositions(Decompositions& all);
void add_scan_decompositions(Decompositions& all);
void add_layer_norm_decompositions(Decompositions& all);
void add_batch_norm_decompositions(Decompositions& all);
void add_batch_norm_update_decompositions(Decompositions& all);
void add_foreach_decompositions(Decompositions& all);
void add_loss_decompositions(Decompositions& all);
void add_nll_decompositions(Decompositions& all);
void add_comparison_decompositions(Decompositions& all);
void add_topk_decompositions(Decompositions& all);
void add_concat_decompositions(Decompositions& all);
void add_convolution_decompositions(Decompositions& all);

/// Returns the decomposition of an operator, or nullptr.
const Decomposition* find_decomposition(const c10::OperatorName& name);

/// Tells whether a mesh dim of several ranks cuts one of the dims of operand 0
/// that the call names in "dim" (all where it names none).
bool shards_named_dim(const RuleCall& call);

}  // namespace tessera::detail::inline tensor_layer
