#include <tensor/move/plan_cache.h>

#include <base/hash.h>
#include <comm/engine/inherited_modes.h>
#include <tensor/state/strides.h>
#include <tensor/state/thread_state.h>
#include <tessera/tensor/dtensor_spec.h>
#include <tessera/tensor/machine_model.h>

namespace tessera::detail::inline tensor_layer {

std::shared_ptr<const PreparedPlan> prepared_plan(
    const DTensorSpec& source, const DeviceMesh& mesh,
    const Placements& placements) {
  return ThreadState::here().plans().find_or_prepare(source, mesh, placements);
}

size_t PlanCache::KeyHash::operator()(const Key& key) const {
  const size_t addresses = base::hash_combine(
      std::hash<const void*>()(key.source), std::hash<const void*>()(key.mesh));
  return base::hash_combine(addresses, key.placements);
}

// A thread that autograd made serves callers with models of their own.
void PlanCache::follow_machine_model() {
  if (mode_value<MachineModel>(Mode::kMachineModel) != model_.get()) {
    plans_.clear();
    model_ = find_mode(Mode::kMachineModel);
  }
}

std::shared_ptr<const PreparedPlan> PlanCache::find_or_prepare(
    const DTensorSpec& source, const DeviceMesh& mesh,
    const Placements& placements) {
  follow_machine_model();
  Key key{&source, &mesh.mesh_shape(), placements};
  if (const Entry* known = plans_.find(key)) {
    return known->plan;
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
      static_cast<int64_t>(c10::elementSize(source.dtype())), machine_model());
  auto prepared = std::make_shared<const PreparedPlan>(
      source.shared_from_this(), std::move(target), std::move(plan));
  return plans_.insert(std::move(key), Entry{mesh, std::move(prepared)}).plan;
}

}  // namespace tessera::detail::inline tensor_layer
