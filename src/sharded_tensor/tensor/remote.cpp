// Shards that other ranks may read: a table of this process, since only ranks
// that share memory can read without the owner's help.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <unordered_map>

#include <c10/util/Exception.h>
#include <comm/engine/engine.h>
#include <comm/log/call_cause.h>
#include <sharded_tensor/tensor/agreement.h>
#include <sharded_tensor/tensor/state.h>
#include <tessera/comm/world.h>

namespace tessera::detail::inline sharded_tensor_layer {

namespace {

struct Published {
  std::mutex mutex;
  std::vector<sharded_tensor::Shard> shards;
};

std::mutex& table_mutex() {
  static std::mutex mutex;
  return mutex;
}
std::unordered_map<uint64_t, std::weak_ptr<Published>>& table() {
  static std::unordered_map<uint64_t, std::weak_ptr<Published>> entries;
  return entries;
}

std::shared_ptr<Published> find(uint64_t id) {
  const std::lock_guard<std::mutex> lock(table_mutex());
  const auto found = table().find(id);
  return found == table().end() ? nullptr : found->second.lock();
}

}  // namespace

// This rank's entry in the table, and the numbers of the other ranks' entries.
class RemoteEntry {
 public:
  RemoteEntry() : published_(std::make_shared<Published>()) {
    static std::atomic<uint64_t> next{1};
    id_ = next++;
    const std::lock_guard<std::mutex> lock(table_mutex());
    table().emplace(id_, published_);
  }
  ~RemoteEntry() {
    const std::lock_guard<std::mutex> lock(table_mutex());
    table().erase(id_);
  }
  RemoteEntry(const RemoteEntry&) = delete;
  RemoteEntry& operator=(const RemoteEntry&) = delete;

  uint64_t id() const { return id_; }
  void set(std::vector<sharded_tensor::Shard> shards) {
    const std::lock_guard<std::mutex> lock(published_->mutex);
    published_->shards = std::move(shards);
  }
  /// The entries of all ranks that made the tensor together, by global rank.
  std::map<int64_t, uint64_t> ids;

 private:
  std::shared_ptr<Published> published_;
  uint64_t id_;
};

StatePtr create_published(
    const char* call, bool init_remote,
    const sharded_tensor::ProcessGroup& makers,
    const std::function<StatePtr()>& make) {
  if (!init_remote) {
    return make();
  }
  const Communicator& all = makers.communicator();
  TORCH_CHECK_NOT_IMPLEMENTED(
      impl_of(all).shares_memory(), call, " with init_remote, rank ", rank(),
      ": ranks that are processes of their own (engine ", all.engine(),
      ") cannot read each other's shards; use gather() or resharded()");
  const CallCause cause(call);
  auto entry = std::make_shared<RemoteEntry>();
  const uint64_t id = entry->id();
  StatePtr state;
  auto agreement = begin_agreement(call, makers);
  agreement.check([&] {
    state = make();
    entry->set(state->local_shards);
  });
  const auto all_ids =
      agreement.collect({reinterpret_cast<const char*>(&id), sizeof(id)});
  for (size_t r = 0; r < all_ids.size(); ++r) {
    std::memcpy(&entry->ids[makers.ranks()[r]], all_ids[r].data(), sizeof(id));
  }
  state->remote = std::move(entry);
  return state;
}

void publish_again(ShardedTensorState& state) {
  state.remote->set(state.local_shards);
  state.group->communicator().barrier();
}

}  // namespace tessera::detail::inline sharded_tensor_layer

namespace tessera::sharded_tensor {

std::map<int64_t, std::vector<RemoteShard>> ShardedTensor::remote_shards()
    const {
  TORCH_CHECK(
      state_->remote, "remote_shards, rank ", rank(),
      ": the tensor was made without init_remote");
  std::map<int64_t, std::vector<RemoteShard>> shards;
  const auto& tiles = state_->layout->tiles();
  for (size_t i = 0; i < tiles.size(); ++i) {
    if (tiles[i].rank == rank()) {
      continue;
    }
    auto& of_rank = shards[tiles[i].rank];
    of_rank.push_back(RemoteShard(
        metadata().shards_metadata[i], state_->remote->ids.at(tiles[i].rank),
        of_rank.size()));
  }
  return shards;
}

at::Tensor RemoteShard::fetch() const {
  const auto published = detail::find(id_);
  TORCH_CHECK(
      published, "RemoteShard::fetch, rank ", rank(), ": the owner of ",
      to_string(metadata_), " has dropped its tensor");
  const std::lock_guard<std::mutex> lock(published->mutex);
  TORCH_CHECK(
      index_ < published->shards.size() &&
          published->shards[index_].metadata == metadata_,
      "RemoteShard::fetch, rank ", rank(), ": the owner of ",
      to_string(metadata_),
      " has cut its tensor anew; ask for remote_shards() again");
  return published->shards[index_].tensor.detach().clone();
}

size_t remote_tensor_count() {
  const std::lock_guard<std::mutex> lock(detail::table_mutex());
  return detail::table().size();
}

}  // namespace tessera::sharded_tensor
