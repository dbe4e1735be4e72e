// The logs of a rank: every communicator of the rank's world has a pointer to
// them, so that a call finds them from whatever thread it is made.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <tessera/comm/comm_log.h>

#include "comm/call/call.h"
#include "comm/log/flight_recorder.h"

namespace tessera::detail::inline comm_layer {

/// What one CommLog has recorded.
class CallRecords {
 public:
  void add(const CommLogEntry& entry);
  std::vector<CommLogEntry> entries() const;
  void clear();

 private:
  mutable std::mutex mutex_;
  std::vector<CommLogEntry> entries_;
};

/// The logs that live, and the record that is always kept.
class CallLogs {
 public:
  const std::shared_ptr<FlightRecorder> flight =
      std::make_shared<FlightRecorder>();

  bool empty() const { return count_.load(std::memory_order_acquire) == 0; }
  void add(std::shared_ptr<CallRecords> log);
  void remove(const std::shared_ptr<CallRecords>& log);
  void record(const CommLogEntry& entry) const;

 private:
  std::atomic<int> count_{0};
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<CallRecords>> logs_;
};

/// Returns the entry of a checked call on this thread.
CommLogEntry entry_of(const CollectiveCall& call, const CallSite& site);

/// Returns the elements that this rank moves, as CommLogEntry::bytes says.
/// `larger_shard` is set where the call is a plan's all_to_all.
int64_t elements_moved(
    const CollectiveCall& call, const CallSite& site,
    std::optional<int64_t> larger_shard);

}  // namespace tessera::detail::inline comm_layer
