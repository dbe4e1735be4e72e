#include <parallel/fully_shard/live_models.h>

#include <mutex>
#include <utility>
#include <vector>

#include <comm/engine/guarded_rank.h>
#include <comm/this_rank.h>

namespace tessera::detail::inline parallel_layer {

namespace {

// Known while it lives: then its mesh keeps the rank's world.
struct LiveModel {
  const WorldImpl* rank;  // null: anybody's
  std::weak_ptr<ShardedModel> model;
};
struct LiveModels {
  std::mutex mutex;
  std::vector<LiveModel> models;
};
LiveModels& live_models() {
  static auto* models = new LiveModels();
  return *models;
}

void release_orphans_of(const WorldImpl* rank) {
  std::vector<std::shared_ptr<ShardedModel>> looked_at;  // end unlocked
  std::vector<std::shared_ptr<ShardedModel>> orphans;
  {
    const std::lock_guard<std::mutex> lock(live_models().mutex);
    std::erase_if(live_models().models, [&](const LiveModel& known) {
      if (known.rank != rank && known.rank != nullptr) {
        return known.model.expired();
      }
      auto model = known.model.lock();
      if (!model || !model->is_orphaned()) {
        looked_at.push_back(std::move(model));
        return looked_at.back() == nullptr;
      }
      orphans.push_back(std::move(model));
      return true;
    });
  }
  for (const auto& model : orphans) {
    model->forget_parameters();
  }
}

// At the end of a thread that was a rank.
struct EndOfRank {
  ~EndOfRank() {
    if (rank != nullptr) {
      release_orphans_of(rank);
      const std::lock_guard<std::mutex> lock(live_models().mutex);
      for (LiveModel& known : live_models().models) {
        if (known.rank == rank) {
          known.rank = nullptr;
        }
      }
    }
  }
  const WorldImpl* rank = nullptr;
};

}  // namespace

void add_live_model(const std::shared_ptr<ShardedModel>& model) {
  const auto rank = this_rank("fully_shard");
  const bool has_neighbours = rank->engine() == "threads" && rank->size() > 1;
  if (has_neighbours && guarded().rank == nullptr) {
    thread_local EndOfRank end;
    end.rank = rank.get();
  }
  const std::lock_guard<std::mutex> lock(live_models().mutex);
  live_models().models.push_back(
      {has_neighbours ? rank.get() : nullptr, model});
}

void release_orphans() {
  release_orphans_of(this_rank("fully_shard").get());
}

}  // namespace tessera::detail::inline parallel_layer
