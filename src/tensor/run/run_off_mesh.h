// Calls without data: on ranks outside the mesh, and in dry runs.
#pragma once

#include <tensor/call/op_traits.h>
#include <tensor/impl/wrap.h>

namespace tessera::detail::inline tensor_layer {

/// Leaves results that have specs and no data. For a rank outside the mesh of
/// the call, which takes no part in its collectives.
void run_off_mesh(const OpCall& call, const OpTraits& traits);
/// The same, without running the operator on tensors of zeros: throws for an
/// operator that has no meta kernel. For dry runs.
void run_for_specs(const OpCall& call, const OpTraits& traits);

/// Adds the results of operators that LibTorch has no meta kernel for.
void add_meta_results(OpRegistry& ops);

/// Makes a tensor that has a spec and no data, for run_for_specs().
at::Tensor wrap_without_data(
    const SpecPtr& spec, c10::Device device, ViewOf shown = {});

/// The same for a view of `source`.
at::Tensor view_without_data(
    const SpecPtr& spec, c10::Device device, const at::Tensor& source);

}  // namespace tessera::detail::inline tensor_layer
