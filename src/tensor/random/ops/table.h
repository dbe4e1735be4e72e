// Which kernel draws for which operator.
#pragma once

#include <optional>

#include <tensor/call/op_registry.h>
#include <tensor/random/philox/philox.h>
#include <tensor/state/spec_fwd.h>

namespace tessera::detail::inline tensor_layer {

/// Adds the operators that draw numbers (tag nondeterministic_seeded), and what
/// serves those that no entry names.
void add_random_operators(OpRegistry& ops);

/// Returns the parameter whose layout the result of `shape` takes: the first
/// sharded one of that shape, or nullptr.
const at::Tensor* tensor_drawn_like(
    const std::vector<const at::Tensor*>& parameters, at::IntArrayRef shape);

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
