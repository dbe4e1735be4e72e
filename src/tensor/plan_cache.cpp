#include <tensor/plan_cache.h>

#include <unordered_map>

#include <base/hash.h>
#include <c10/core/ScalarType.h>

namespace tessera::detail {

namespace {

constexpr size_t kMaxPlans = 4096;

struct Key {
  Layout source;
  Layout target;
  int64_t element_size;
  friend bool operator==(const Key&, const Key&) = default;
};

struct KeyHash {
  size_t operator()(const Key& key) const {
    size_t hash = key.source.hash();
    hash = hash * 31 + key.target.hash();
    return hash * 31 + static_cast<size_t>(key.element_size);
  }
};

}  // namespace

const RedistributePlan& cached_plan(
    const DTensorSpec& source, const Placements& target) {
  thread_local std::unordered_map<Key, RedistributePlan, KeyHash> plans;
  Key key{
      source.layout(),
      Layout(source.shape(), source.mesh().mesh_shape(), target),
      static_cast<int64_t>(c10::elementSize(source.dtype()))};
  if (const auto known = plans.find(key); known != plans.end()) {
    return known->second;
  }
  if (plans.size() >= kMaxPlans) {
    plans.clear();
  }
  RedistributePlan plan =
      plan_redistribution(key.source, key.target, key.element_size);
  return plans.emplace(std::move(key), std::move(plan)).first->second;
}

}  // namespace tessera::detail
