#include "comm/engine/process/pending_calls.h"

#include <chrono>
#include <mutex>
#include <utility>
#include <vector>

namespace tessera::detail::inline comm_layer {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kInterval = std::chrono::microseconds(20);

// The worlds of this process; the lock is held while they move.
struct Worlds {
  std::mutex mutex;
  std::vector<PendingCalls*> all;
};

Worlds& worlds() {
  static auto* instance = new Worlds();  // outlives everything
  return *instance;
}

}  // namespace

std::atomic<int64_t> pending_calls = 0;

void advance_calls() {
  const std::unique_lock<std::mutex> lock(worlds().mutex, std::try_to_lock);
  if (lock.owns_lock()) {
    for (PendingCalls* world : worlds().all) {
      world->advance_();
    }
  }
}

void advance_calls_now_and_then() {
  static std::atomic<Clock::rep> next = 0;
  if (Clock::now().time_since_epoch().count() <
      next.load(std::memory_order_relaxed)) {
    return;
  }
  advance_calls();
  next.store(
      (Clock::now() + kInterval).time_since_epoch().count(),
      std::memory_order_relaxed);
}

PendingCalls::PendingCalls(std::function<void()> advance)
    : advance_(std::move(advance)) {
  const std::lock_guard<std::mutex> lock(worlds().mutex);
  worlds().all.push_back(this);
}

PendingCalls::~PendingCalls() {
  const std::lock_guard<std::mutex> lock(worlds().mutex);
  std::erase(worlds().all, this);
  set_count(0);
}

void PendingCalls::set_count(int64_t count) {
  if (count != count_) {
    pending_calls.fetch_add(count - count_, std::memory_order_relaxed);
    count_ = count;
  }
}

}  // namespace tessera::detail::inline comm_layer
