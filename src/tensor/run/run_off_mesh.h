// Calls without data: on ranks outside the mesh, and in dry runs.
#pragma once

#include <tensor/call/op_traits.h>
#include <tensor/impl/wrap.h>

namespace tessera::detail {

/// Gives the results of a call their specs on a rank outside the mesh, which
/// holds no data and takes no part.
void run_off_mesh(const OpCall& call, const OpTraits& traits);
/// The same where nothing may be computed, not even on zeros: throws for an
/// operator without a meta kernel. Arguments and results have no data.
void run_for_specs(const OpCall& call, const OpTraits& traits);

/// Makes a tensor that has a spec and no data, for run_for_specs().
at::Tensor wrap_without_data(
    const SpecPtr& spec, c10::Device device, ViewOf shown = {});

/// The same for a view of `source`.
at::Tensor view_without_data(
    const SpecPtr& spec, c10::Device device, const at::Tensor& source);

}  // namespace tessera::detail
