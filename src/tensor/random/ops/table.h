// Which kernel draws for which operator.
#pragma once

#include <optional>

#include <tensor/call/op_traits.h>
#include <tensor/random/philox/philox.h>
#include <tensor/state/spec_fwd.h>

namespace tessera::detail::inline tensor_layer {

/// Returns the kernel of an operator that draws numbers (tag
/// nondeterministic_seeded); nullptr for one that ATen decomposes.
CustomKernel random_kernel(const c10::OperatorHandle& op);
/// Returns the kernel of an operator that we draw for ourselves, or nullptr.
CustomKernel listed_random_kernel(const c10::OperatorName& name);

/// Returns what lists the moves of that kernel.
CustomKernelMoves random_moves(const c10::OperatorHandle& op);

/// Returns the parameter whose layout the result of `shape` takes: the first
/// sharded one of that shape, or nullptr.
const at::Tensor* tensor_drawn_like(
    const std::vector<const at::Tensor*>& parameters, at::IntArrayRef shape);

/// Tells whether the kernel of a random operator runs this call by itself. A
/// fused kernel that is tagged as random does not: its calls are decided as
/// those of other operators are.
bool draws_by_itself(const OpCall& call, CustomKernel kernel);

/// Returns the placements of the results of a random call where they are not
/// those that its tensors have in common.
std::optional<Placements> random_placements(const OpCall& call);

/// Runs attention with dropout in its math form, whose dropout is ours; tells
/// whether the call is one. ATen would choose a fused kernel on some devices.
bool run_attention_with_dropout(const OpCall& call);

/// Counts a call on a rank that holds none of its tensors.
void skip_random(const OpCall& call);

// Families, by file: fill_ops.cpp
void fill_kernel(const OpCall& call);
// tensor_ops.cpp: parameters are tensors
void bernoulli_kernel(const OpCall& call);
void normal_kernel(const OpCall& call);
void dropout_kernel(const OpCall& call);
void rrelu_kernel(const OpCall& call);
/// Returns the placements of the results of rrelu: those of self, unless it has
/// partial values.
std::optional<Placements> placements_of_rrelu(const OpCall& call);
// sample_ops.cpp: by rejection
void gamma_kernel(const OpCall& call);
void poisson_kernel(const OpCall& call);
void binomial_kernel(const OpCall& call);
void dirichlet_kernel(const OpCall& call);
// row_ops.cpp: from whole rows
void multinomial_kernel(const OpCall& call);
/// Returns the placements in which multinomial() samples the rows of its
/// weights apart; nothing where it needs all of them.
std::optional<Placements> placements_of_rows(const at::Tensor& weights);
/// Returns the spec of what the ranks tell each other about their weights.
SpecPtr fault_spec(const DeviceMesh& mesh, const Placements& rows);
void randperm_kernel(const OpCall& call);
/// Returns the numbers 0 .. n-1 in random order, on the host.
at::Tensor draw_permutation(int64_t n, PhiloxKey key);

}  // namespace tessera::detail::inline tensor_layer
