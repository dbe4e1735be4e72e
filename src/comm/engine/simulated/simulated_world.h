// The simulated engine: one rank of a world of any size, without the others.
// A call is complete when it is made; see Note [What the others hold]. Nothing
// here is as large as the world but the lists of ranks that are asked for.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <tessera/comm/world.h>

#include "comm/engine/engine.h"

namespace tessera::detail::inline comm_layer {

/// A message of a rank to itself that waits for its other half.
struct OwnMessage {
  explicit OwnMessage(CollectiveCall half) : call(std::move(half)) {}
  CollectiveCall call;  // the half that came first
  std::atomic<bool> complete{false};
  std::atomic<bool> withdrawn{false};
};

/// A list of ranks, and this rank's messages to itself in it, by tag.
struct SimulatedGroup {
  std::vector<int64_t> ranks;
  std::mutex mutex;  // guards the messages
  std::map<int64_t, std::deque<std::shared_ptr<OwnMessage>>> messages;
};

class SimulatedWorld : public WorldImpl,
                       public std::enable_shared_from_this<SimulatedWorld> {
 public:
  explicit SimulatedWorld(const SimulatedRank& which) : which_(which) {}

  int64_t rank() const override { return which_.rank; }
  int64_t size() const override { return which_.size; }
  std::string engine() const override { return "simulated"; }
  std::chrono::milliseconds deadline() const override { return deadline_; }
  void set_deadline(std::chrono::milliseconds deadline) override {
    deadline_ = deadline;
  }
  std::shared_ptr<CommunicatorImpl> communicator(
      const std::vector<int64_t>& ranks) override;
  void rebuild(const std::vector<int64_t>& /*ranks*/) override {
  }  // never breaks

  /// Returns the group of exactly these ranks; it lives as long as the world.
  SimulatedGroup& group(const std::vector<int64_t>& ranks);

 private:
  const SimulatedRank which_;
  std::atomic<std::chrono::milliseconds> deadline_{std::chrono::minutes(5)};
  std::mutex mutex_;  // guards the groups
  std::map<std::vector<int64_t>, std::unique_ptr<SimulatedGroup>> groups_;
};

/// Returns the simulated rank that this thread is, or null.
const std::shared_ptr<SimulatedWorld>& current_simulated_thread();
/// Returns the same, else the rank that this process is by
/// TESSERA_ENGINE=simulated, else null.
std::shared_ptr<SimulatedWorld> current_simulated_rank();

/// Runs `body` as that rank, on a thread of its own, so that plans, modes and
/// current meshes end with it.
void run_simulated_rank(
    const SimulatedRank& which, const std::function<void()>& body);

}  // namespace tessera::detail::inline comm_layer
