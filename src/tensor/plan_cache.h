// Redistribution plans, kept for the next time.
#pragma once

#include <tessera/plan/redistribute_plan.h>
#include <tessera/tensor/dtensor_spec.h>

namespace tessera::detail {

/// Returns the plan from a spec to other placements of its mesh. Plans are kept
/// per thread, a bounded number of them; the reference is good until the next
/// call on this thread.
const RedistributePlan& cached_plan(
    const DTensorSpec& source, const Placements& target);

}  // namespace tessera::detail
