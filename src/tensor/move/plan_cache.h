// Prepared plans, kept for the next time.
#pragma once

#include <cstddef>
#include <memory>

#include <tensor/move/prepared_plan.h>
#include <tessera/plan/cost.h>

namespace tessera::detail::inline tensor_layer {

/// Returns the plan from a spec to placements of `mesh`, which may be its own.
/// The target is dense, in the order of dims of the source. Plans are kept per
/// thread, a bounded number of them.
std::shared_ptr<const PreparedPlan> prepared_plan(
    const DTensorSpec& source, const DeviceMesh& mesh,
    const Placements& placements);

/// What a thread keeps to plan moves by.
struct PlanCache {
  /// The machine that plans are priced for.
  MachineModel model;

  size_t size() const;
  void clear();

  static PlanCache& here();
};

}  // namespace tessera::detail::inline tensor_layer
