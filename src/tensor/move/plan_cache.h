// Prepared plans, kept for the next time.
#pragma once

#include <cstddef>
#include <memory>

#include <tensor/move/prepared_plan.h>
#include <tensor/state/bounded_cache.h>
#include <tessera/comm/device_mesh.h>
#include <tessera/plan/cost.h>

namespace tessera::detail::inline tensor_layer {

/// Returns the plan from a spec to placements of `mesh`, which may be its own.
/// The target is dense, in the order of dims of the source. Plans are kept per
/// thread, a bounded number of them.
std::shared_ptr<const PreparedPlan> prepared_plan(
    const DTensorSpec& source, const DeviceMesh& mesh,
    const Placements& placements);

/// The plans of a thread, for one machine.
class PlanCache {
 public:
  std::shared_ptr<const PreparedPlan> find_or_prepare(
      const DTensorSpec& source, const DeviceMesh& mesh,
      const Placements& placements);
  size_t size() const { return plans_.size(); }
  void clear() { plans_.clear(); }

 private:
  // Specs and meshes are compared by address, since specs are interned and the
  // entry keeps both alive. An equal mesh made anew is a miss, no more.
  struct Key {
    const DTensorSpec* source;
    const MeshShape* mesh;
    Placements placements;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const;
  };
  struct Entry {
    DeviceMesh mesh;
    std::shared_ptr<const PreparedPlan> plan;
  };

  void follow_machine_model();

  BoundedCache<Key, Entry, KeyHash> plans_{1024};
  std::shared_ptr<const void> model_;  // that the plans were made for
};

}  // namespace tessera::detail::inline tensor_layer
