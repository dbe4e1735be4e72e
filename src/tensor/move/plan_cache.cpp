#include <tensor/move/plan_cache.h>

#include <unordered_map>

#include <base/hash.h>
#include <tensor/state/strides.h>
#include <tessera/tensor/dtensor_spec.h>

namespace tessera::detail::inline tensor_layer {

namespace {

// Enough for any program that repeats itself; one that does not starts over.
constexpr size_t kMaxPlans = 1024;

// Specs and meshes are compared by address, since specs are interned and the
// entry keeps both alive. An equal mesh made anew is a miss, no more.
struct Key {
  const DTensorSpec* source;
  const MeshShape* mesh;
  Placements placements;
  friend bool operator==(const Key&, const Key&) = default;
};

struct KeyHash {
  size_t operator()(const Key& key) const {
    const size_t addresses = base::hash_combine(
        std::hash<const void*>()(key.source),
        std::hash<const void*>()(key.mesh));
    return base::hash_combine(addresses, key.placements);
  }
};

struct Entry {
  DeviceMesh mesh;
  std::shared_ptr<const PreparedPlan> plan;
};

struct ThreadPlans {
  std::unordered_map<Key, Entry, KeyHash> plans;
  PlanCache cache;
};

ThreadPlans& thread_plans() {
  thread_local ThreadPlans instance;
  return instance;
}

}  // namespace

std::shared_ptr<const PreparedPlan> prepared_plan(
    const DTensorSpec& source, const DeviceMesh& mesh,
    const Placements& placements) {
  ThreadPlans& mine = thread_plans();
  Key key{&source, &mesh.mesh_shape(), placements};
  if (const auto known = mine.plans.find(key); known != mine.plans.end()) {
    return known->second.plan;
  }
  // Shards that move get memory of their own, so elements of an expanded tensor
  // that shared some no longer do, and there is none between those of a slice.
  SpecPtr target = DTensorSpec::make(
      mesh, placements, source.shape(),
      strides_in_format(
          source.shape(), source.strides(), c10::MemoryFormat::Preserve),
      source.dtype());
  RedistributePlan plan = plan_redistribution(
      source.layout(), target->layout(),
      static_cast<int64_t>(c10::elementSize(source.dtype())), mine.cache.model);
  auto prepared = std::make_shared<const PreparedPlan>(
      source.shared_from_this(), std::move(target), std::move(plan));
  if (mine.plans.size() >= kMaxPlans) {
    mine.plans.clear();
  }
  mine.plans.emplace(std::move(key), Entry{mesh, prepared});
  return prepared;
}

size_t PlanCache::size() const {
  return thread_plans().plans.size();
}

void PlanCache::clear() {
  thread_plans().plans.clear();
}

PlanCache& PlanCache::here() {
  return thread_plans().cache;
}

}  // namespace tessera::detail::inline tensor_layer
