// The search for the cheapest sequence of moves on one mesh.
#pragma once

#include <vector>

#include <tessera/plan/cost.h>
#include <tessera/plan/step.h>

namespace tessera::detail::inline plan_layer {

/// What a search prices moves with.
struct Pricing {
  const MachineModel& model;
  int64_t element_size;
};

/// Returns the cheapest steps between two layouts on one mesh, of those within
/// the memory limit of the model if there are any; of equally cheap ones those
/// with fewer steps, then fewer bytes, then the first found in the order of
/// moves.
std::vector<Step> search_steps(
    const Layout& source, const Layout& target, const Pricing& pricing);

/// Returns the exchange between two layouts, priced; meshes may differ.
Step exchange_step(
    const Layout& source, const Layout& target, const Pricing& pricing);

/// Returns a step between two layouts that differ on `mesh_dims`, priced; not
/// for exchanges.
Step collective_step(
    StepKind kind, std::vector<int64_t> mesh_dims, const Layout& before,
    const Layout& after, const Pricing& pricing);

/// Returns the elements of the largest shard.
int64_t largest_shard(const Layout& layout);

}  // namespace tessera::detail::inline plan_layer
