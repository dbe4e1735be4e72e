#include "comm/engine/c10d/gloo_channel.h"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "comm/engine/c10d/gloo_transfer.h"

namespace tessera::detail::inline comm_layer {
namespace {

class GlooChannel final : public Channel {
 public:
  GlooChannel(
      StorePtr store, GlooDevices devices, int64_t group_rank, int64_t size)
      : store_(std::move(store)),
        devices_(std::move(devices)),
        group_rank_(group_rank),
        size_(size) {}
  ~GlooChannel() override { close(); }

  TransferPtr all_gather(
      const void* input, int64_t size, void* output,
      const std::vector<int64_t>& counts) override {
    return all().all_gather(input, size, output, counts);
  }
  TransferPtr all_to_all(
      const void* input, const std::vector<int64_t>& sent, void* output,
      const std::vector<int64_t>& received) override {
    return all().all_to_all(input, sent, output, received);
  }
  TransferPtr broadcast(void* data, int64_t bytes, int64_t root) override {
    return all().broadcast(data, bytes, root);
  }
  TransferPtr send(
      const void* data, int64_t bytes, int64_t group_rank,
      int64_t tag) override {
    return pair(group_rank)
        .send(data, bytes, group_rank > group_rank_ ? 1 : 0, tag);
  }
  TransferPtr receive(
      void* data, int64_t bytes, int64_t group_rank, int64_t tag) override {
    return pair(group_rank)
        .receive(data, bytes, group_rank > group_rank_ ? 1 : 0, tag);
  }

  std::vector<int64_t> absent() override {
    std::vector<int64_t> group_ranks;
    if (all_ != nullptr) {
      group_ranks = all_->absent();
    }
    for (const auto& [group_rank, channel] : pairs_) {
      const bool known =
          std::find(group_ranks.begin(), group_ranks.end(), group_rank) !=
          group_ranks.end();
      if (!known && !channel->absent().empty()) {
        group_ranks.push_back(group_rank);
      }
    }
    return group_ranks;
  }

  void close() noexcept override {
    closed_ = true;
    if (all_ != nullptr) {
      all_->close();
    }
    for (const auto& [group_rank, channel] : pairs_) {
      channel->close();
    }
  }

 private:
  std::shared_ptr<Channel> mesh(
      const std::string& name, int64_t group_rank, int64_t size) const {
    if (closed_) {
      throw std::runtime_error(kClosed);
    }
    return make_gloo_mesh(
        c10::make_intrusive<::c10d::PrefixStore>(name, store_), devices_,
        group_rank, size);
  }
  Channel& all() {
    if (all_ == nullptr) {
      all_ = mesh("all", group_rank_, size_);
    }
    return *all_;
  }
  Channel& pair(int64_t other) {
    const auto known = pairs_.find(other);
    if (known != pairs_.end()) {
      return *known->second;
    }
    const auto [low, high] = std::minmax(group_rank_, other);
    auto made = mesh(
        std::to_string(low) + " and " + std::to_string(high),
        group_rank_ == low ? 0 : 1, 2);
    return *pairs_.emplace(other, std::move(made)).first->second;
  }

  const StorePtr store_;
  const GlooDevices devices_;
  const int64_t group_rank_;
  const int64_t size_;
  bool closed_ = false;
  std::shared_ptr<Channel> all_;
  std::map<int64_t, std::shared_ptr<Channel>> pairs_;  // by the other's place
};

}  // namespace

std::unique_ptr<Channel> make_gloo_channel(
    StorePtr store, GlooDevices devices, int64_t group_rank, int64_t size) {
  return std::make_unique<GlooChannel>(
      std::move(store), std::move(devices), group_rank, size);
}

}  // namespace tessera::detail::inline comm_layer
