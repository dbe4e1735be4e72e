#include "comm/engine/c10d/gloo_channel.h"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "comm/engine/c10d/gloo_transfer.h"

namespace tessera::detail {
namespace {

class GlooWire final : public Wire {
 public:
  GlooWire(StorePtr store, GlooDevices devices, int64_t place, int64_t size)
      : store_(std::move(store)),
        devices_(std::move(devices)),
        place_(place),
        size_(size) {}
  ~GlooWire() override { close(); }

  TransitPtr all_gather(
      const void* input, void* output,
      const std::vector<int64_t>& counts) override {
    return all().all_gather(input, output, counts);
  }
  TransitPtr all_to_all(
      const void* input, const std::vector<int64_t>& sent, void* output,
      const std::vector<int64_t>& received) override {
    return all().all_to_all(input, sent, output, received);
  }
  TransitPtr broadcast(void* data, int64_t bytes, int64_t root) override {
    return all().broadcast(data, bytes, root);
  }
  TransitPtr send(
      const void* data, int64_t bytes, int64_t place, int64_t tag) override {
    return pair(place).send(data, bytes, place > place_ ? 1 : 0, tag);
  }
  TransitPtr receive(
      void* data, int64_t bytes, int64_t place, int64_t tag) override {
    return pair(place).receive(data, bytes, place > place_ ? 1 : 0, tag);
  }

  std::vector<int64_t> absent() override {
    std::vector<int64_t> places;
    if (all_ != nullptr) {
      places = all_->absent();
    }
    for (const auto& [place, wire] : pairs_) {
      const bool known =
          std::find(places.begin(), places.end(), place) != places.end();
      if (!known && !wire->absent().empty()) {
        places.push_back(place);
      }
    }
    return places;
  }

  void close() noexcept override {
    closed_ = true;
    if (all_ != nullptr) {
      all_->close();
    }
    for (const auto& [place, wire] : pairs_) {
      wire->close();
    }
  }

 private:
  std::shared_ptr<Wire> mesh(
      const std::string& name, int64_t place, int64_t size) const {
    if (closed_) {
      throw std::runtime_error(kClosed);
    }
    return make_gloo_mesh(
        c10::make_intrusive<::c10d::PrefixStore>(name, store_), devices_, place,
        size);
  }
  Wire& all() {
    if (all_ == nullptr) {
      all_ = mesh("all", place_, size_);
    }
    return *all_;
  }
  Wire& pair(int64_t other) {
    const auto known = pairs_.find(other);
    if (known != pairs_.end()) {
      return *known->second;
    }
    const auto [low, high] = std::minmax(place_, other);
    auto made = mesh(
        std::to_string(low) + " and " + std::to_string(high),
        place_ == low ? 0 : 1, 2);
    return *pairs_.emplace(other, std::move(made)).first->second;
  }

  const StorePtr store_;
  const GlooDevices devices_;
  const int64_t place_;
  const int64_t size_;
  bool closed_ = false;
  std::shared_ptr<Wire> all_;
  std::map<int64_t, std::shared_ptr<Wire>> pairs_;  // by the other's place
};

}  // namespace

std::unique_ptr<Wire> make_gloo_wire(
    StorePtr store, GlooDevices devices, int64_t place, int64_t size) {
  return std::make_unique<GlooWire>(
      std::move(store), std::move(devices), place, size);
}

}  // namespace tessera::detail
