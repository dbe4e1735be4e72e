// What an engine implements. The front end (communicator.cpp, world.cpp) checks
// arguments, so an engine sees valid calls only and has one function that
// moves data: submit().
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/call/call.h"
#include "comm/engine/random_counters.h"
#include "comm/log/call_records.h"

namespace tessera::detail::inline comm_layer {

/// A call under way on one rank.
class WorkImpl {
 public:
  virtual ~WorkImpl() = default;
  /// Returns when this rank's tensors are free to use; throws what went wrong.
  /// On an accelerator, "free" is in the order of this thread's streams.
  virtual void wait() = 0;
  /// Tells whether wait() would return at once; must make progress, so that a
  /// loop over done() ends.
  virtual bool done() = 0;
  /// Gives the call up: an exception is passing through this rank, which must
  /// not wait for others now. Afterwards its tensors are not touched.
  virtual void abandon() = 0;

  /// Tells whether an exception has been thrown since this was made.
  bool is_unwinding() const { return std::uncaught_exceptions() > exceptions_; }

  /// The call in the flight record; set by the front end.
  FlightCall flight;

 private:
  int exceptions_ = std::uncaught_exceptions();
};

class WorldImpl;

/// One rank's view of a group.
class CommunicatorImpl {
 public:
  /// `logs` are those of the rank.
  explicit CommunicatorImpl(std::shared_ptr<CallLogs> logs)
      : logs_(std::move(logs)) {}
  virtual ~CommunicatorImpl() = default;
  const std::shared_ptr<CallLogs>& logs() const { return logs_; }
  virtual int64_t rank() const = 0;
  /// Returns the global ranks, in group order.
  virtual const std::vector<int64_t>& ranks() const = 0;
  virtual std::string engine() const = 0;
  /// Tells whether calls may have `reads`.
  virtual bool shares_memory() const { return false; }
  virtual std::unique_ptr<WorkImpl> submit(CollectiveCall call) = 0;
  /// Returns the group of the given global ranks, this rank among them.
  virtual std::shared_ptr<CommunicatorImpl> subgroup(
      const std::vector<int64_t>& ranks) = 0;

  /// The counters that calls are stamped with; set by the front end.
  std::shared_ptr<const RandomCounters> random;
  /// The world that the group is part of; set by the front end.
  std::shared_ptr<WorldImpl> of_world;
  /// The group in the flight record; set by the front end's first call.
  std::atomic<FlightGroup*> flight_group = nullptr;

 private:
  std::shared_ptr<CallLogs> logs_;
};

/// One rank's view of all ranks.
class WorldImpl {
 public:
  virtual ~WorldImpl() = default;
  /// Returns the logs of this rank, for its communicators to write.
  const std::shared_ptr<CallLogs>& logs() const { return logs_; }
  virtual int64_t rank() const = 0;
  virtual int64_t size() const = 0;
  virtual std::string engine() const = 0;
  virtual std::chrono::milliseconds deadline() const = 0;
  virtual void set_deadline(std::chrono::milliseconds deadline) = 0;
  /// Returns the group of the given global ranks, this rank among them.
  virtual std::shared_ptr<CommunicatorImpl> communicator(
      const std::vector<int64_t>& ranks) = 0;
  /// Gives the group of these ranks, and all handles to it, new connections;
  /// each rank of it does.
  virtual void rebuild(const std::vector<int64_t>& ranks) = 0;

  /// Set by note_equal_shards().
  std::atomic<bool> took_shards_for_equal = false;
  /// This rank's random numbers.
  const std::shared_ptr<RandomCounters> random =
      std::make_shared<RandomCounters>();

 private:
  std::shared_ptr<CallLogs> logs_ = std::make_shared<CallLogs>();
};

}  // namespace tessera::detail::inline comm_layer
