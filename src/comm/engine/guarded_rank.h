// Threads beside the ranks that are threads: whose are they?
#pragma once

#include <cstdint>
#include <memory>

namespace tessera::detail::inline comm_layer {

class WorldImpl;

/// Ranks run as threads of this process while it lives, simulated ones too.
class ThreadRanksRun {
 public:
  ThreadRanksRun();
  ~ThreadRanksRun();
  ThreadRanksRun(const ThreadRanksRun&) = delete;
  ThreadRanksRun& operator=(const ThreadRanksRun&) = delete;
};

/// Throws where ranks run as threads of this process: a thread that is none of
/// them, and that no RankGuard has made part of one, has no rank then.
void check_no_thread_ranks(const char* call);

/// What the innermost RankGuard has made of this thread.
struct Guarded {
  std::shared_ptr<WorldImpl> rank;  // null without a guard
  uint64_t thread = 0;              // a hash of the guard's name, else 0
};
/// Returns this thread's.
const Guarded& guarded();

}  // namespace tessera::detail::inline comm_layer
