// Progress of asynchronous calls between processes while the program computes.
//
// Note [Progress at operator calls]
// No thread of ours moves calls on: there is no core to spare for one. Instead
// every operator on sharded tensors looks, at most once in 20 us, while any
// call is under way; else that costs one load. What moves when depends on time,
// but nothing that ranks decide follows from it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

namespace tessera::detail::inline comm_layer {

/// How many calls of this process have begun and not ended.
extern std::atomic<int64_t> pending_calls;

/// Moves all of them on without waiting, unless another thread is at it.
void advance_calls();
/// The same for frequent callers: mostly returns at once.
void advance_calls_now_and_then();

/// The calls of one world. While it lives, `advance` is called to move them on,
/// on any thread, one at a time.
class PendingCalls {
 public:
  explicit PendingCalls(std::function<void()> advance);
  ~PendingCalls();
  PendingCalls(const PendingCalls&) = delete;
  PendingCalls& operator=(const PendingCalls&) = delete;
  /// Says how many there are.
  void set_count(int64_t count);

 private:
  friend void advance_calls();
  std::function<void()> advance_;
  int64_t count_ = 0;
};

}  // namespace tessera::detail::inline comm_layer
