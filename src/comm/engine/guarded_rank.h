// Threads beside the ranks that are threads: whose are they?
#pragma once

#include <cstdint>
#include <memory>

namespace tessera::detail {

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

/// Returns the rank that a RankGuard has made this thread part of, or null.
const std::shared_ptr<WorldImpl>& guarded_rank();
/// Returns a hash of the name of this thread's RankGuard; 0 without one.
uint64_t guarded_thread();

}  // namespace tessera::detail
