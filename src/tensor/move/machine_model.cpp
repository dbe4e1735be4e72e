#include <tessera/tensor/machine_model.h>

#include <tensor/move/plan_cache.h>
#include <tensor/state/thread_state.h>

namespace tessera {

const MachineModel& machine_model() {
  return detail::PlanCache::here().model;
}

void set_machine_model(const MachineModel& model) {
  detail::PlanCache::here().model = model;
  clear_caches();
}

size_t cached_plan_count() {
  return detail::PlanCache::here().size();
}

void clear_caches() {
  detail::PlanCache::here().clear();
  detail::ThreadState::here().clear_decisions();
}

size_t cached_decision_count() {
  return detail::ThreadState::here().decision_count();
}

int64_t dispatched_call_count() {
  return detail::ThreadState::here().calls;
}

}  // namespace tessera
