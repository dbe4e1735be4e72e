#include <parallel/recompute/forward_state.h>

#include <algorithm>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/equal.h>
#include <c10/util/Exception.h>
#include <tessera/comm/world.h>

namespace tessera::detail::inline parallel_layer {

namespace {

using SavedGenerator = std::pair<at::Generator, at::Tensor>;

SavedGenerator saved_state(at::Generator generator) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  at::Tensor state = generator.get_state();
  return {std::move(generator), std::move(state)};
}

void set_state(const SavedGenerator& saved) {
  at::Generator generator = saved.first;
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(saved.second);
}

std::vector<SavedGenerator> default_generators(
    const std::vector<at::Tensor>& tensors) {
  std::vector<SavedGenerator> all = {
      saved_state(at::detail::getDefaultCPUGenerator())};
  std::vector<c10::Device> devices;
  for (const at::Tensor& t : tensors) {
    if (t.defined() && t.is_cuda() &&
        std::find(devices.begin(), devices.end(), t.device()) ==
            devices.end()) {
      devices.push_back(t.device());
      all.push_back(
          saved_state(at::globalContext().defaultGenerator(t.device())));
    }
  }
  return all;
}

}  // namespace

ForwardState::ForwardState(const std::vector<at::Tensor>& tensors)
    : generators_(default_generators(tensors)),
      counters_(init().random_counters()),
      random_(counters_->snapshot()),
      first_draw_(counters_->draws()),
      replication_(ThreadState::here().replication) {}

void ForwardState::warn_of_shared_generator() const {
  if (init().engine() != "threads" || init().size() == 1) {
    return;
  }
  const SavedGenerator& before = generators_[0];
  if (!at::equal(saved_state(before.first).second, before.second)) {
    TORCH_WARN_ONCE(
        "activation_checkpoint, rank ", rank(),
        ": LibTorch's CPU generator, which ranks that are threads share, was "
        "used while fn ran; if fn drew from it, it cannot draw the same in the "
        "recomputation, and gradients are wrong; let fn draw into sharded "
        "tensors, or hold a ReplicatedRandom (said once)");
  }
}

// Casts that autocast keeps have the history of the run that made them.
ForwardState::Restore::Restore(const ForwardState& state)
    : state_(state),
      random_(state.counters_->snapshot()),
      replication_(
          std::exchange(ThreadState::here().replication, state.replication_)),
      casts_are_cached_(at::autocast::is_autocast_cache_enabled()),
      modes_(state.modes_) {
  at::autocast::set_autocast_cache_enabled(false);
  for (const SavedGenerator& generator : state_.generators_) {
    generators_.push_back(saved_state(generator.first));
    set_state(generator);
  }
  state_.counters_->restore(*state_.random_);
}

ForwardState::Restore::~Restore() {
  state_.counters_->restore(*random_);
  for (const SavedGenerator& generator : generators_) {
    set_state(generator);
  }
  at::autocast::set_autocast_cache_enabled(casts_are_cached_);
  ThreadState::here().replication = replication_;
}

}  // namespace tessera::detail::inline parallel_layer
