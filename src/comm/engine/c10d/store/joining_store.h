// A store as Gloo uses it while it connects: its waits can be stopped.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

namespace tessera::detail::inline comm_layer {

/// Looks into another store instead of waiting in it: a wait inside a store
/// blocks the store for every thread of the process, and cannot be ended. What
/// does not wait is LibTorch's, under keys of its own.
class JoiningStore final : public ::c10d::PrefixStore {
 public:
  explicit JoiningStore(c10::intrusive_ptr<::c10d::Store> store);

  /// Ends waits, now and later, by an error.
  void stop() noexcept { stopped_ = true; }
  /// Says that the place is joining.
  void announce(int64_t group_rank);
  /// Returns when all `size` places have said so.
  void wait_for_all(int64_t size);
  /// Returns the places of `size` that have not said so.
  std::vector<int64_t> absent(int64_t size);

  c10::intrusive_ptr<::c10d::Store> clone() override;
  std::vector<uint8_t> get(const std::string& key) override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(
      const std::vector<std::string>& keys,
      const std::chrono::milliseconds& timeout) override;
  /// Its calls for several keys at once would wait in the store.
  bool hasExtendedApi() const override { return false; }

 private:
  /// Waits for a key. Once stopped, it ends after the grace.
  void wait_until(const std::string& key, std::chrono::milliseconds grace);

  std::atomic<bool> stopped_ = false;
};

}  // namespace tessera::detail::inline comm_layer
