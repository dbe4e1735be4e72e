#include <parallel/fully_shard/live_models.h>

#include <mutex>
#include <utility>
#include <vector>

namespace tessera::detail::inline parallel_layer {

namespace {

struct LiveModels {
  std::mutex mutex;
  std::vector<std::weak_ptr<ShardedModel>> models;
};
LiveModels& live_models() {
  static auto* models = new LiveModels();
  return *models;
}

}  // namespace

void add_live_model(const std::shared_ptr<ShardedModel>& model) {
  const std::lock_guard<std::mutex> lock(live_models().mutex);
  live_models().models.push_back(model);
}

void release_orphans() {
  std::vector<std::shared_ptr<ShardedModel>> orphans;
  {
    const std::lock_guard<std::mutex> lock(live_models().mutex);
    std::erase_if(live_models().models, [&](const auto& known) {
      auto model = known.lock();
      const bool is_gone = !model || model->is_orphaned();
      if (model && is_gone) {
        orphans.push_back(std::move(model));
      }
      return is_gone;
    });
  }
  for (const auto& model : orphans) {
    model->forget_parameters();
  }
}

}  // namespace tessera::detail::inline parallel_layer
