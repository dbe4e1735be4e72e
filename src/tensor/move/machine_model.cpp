#include <tessera/tensor/machine_model.h>

#include <comm/engine/inherited_modes.h>
#include <tensor/move/plan_cache.h>
#include <tensor/state/thread_state.h>

namespace tessera {

const MachineModel& machine_model() {
  static const auto* one_host = new MachineModel();
  const auto* model =
      detail::mode_value<MachineModel>(detail::Mode::kMachineModel);
  return model != nullptr ? *model : *one_host;
}

void set_machine_model(const MachineModel& model) {
  detail::exchange_mode(
      detail::Mode::kMachineModel, std::make_shared<const MachineModel>(model));
  clear_caches();
  detail::forget_all_decisions();  // autograd's threads decide for this one
}

size_t cached_plan_count() {
  return detail::ThreadState::here().plans().size();
}

void clear_caches() {
  detail::ThreadState& mine = detail::ThreadState::here();
  mine.plans().clear();
  mine.clear_decisions();
}

size_t cached_decision_count() {
  return detail::ThreadState::here().decision_count();
}

int64_t decided_call_count() {
  return detail::ThreadState::here().decided_calls;
}

int64_t dispatched_call_count() {
  return detail::ThreadState::here().calls;
}

}  // namespace tessera
