// Keeps the last calls of a rank; see <tessera/comm/flight_recorder.h>.
//
// The front end makes a FlightCall when a call starts and tells it how the call
// ends, whatever the engine. A start and an end each cost a lock that is hardly
// ever contended, a look at the processor's counter and a copy of plain facts;
// counts become times, and facts text, when somebody reads. What a rank prints
// on failure it prints after the engine has told the others.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <c10/util/ApproximateClock.h>
#include <tessera/comm/flight_recorder.h>

#include "comm/call/call.h"

namespace tessera::detail::inline comm_layer {

/// A group in the record of one of its ranks.
struct FlightGroup {
  std::vector<int64_t> ranks;  // global
  int64_t rank = 0;            // this one
  int64_t collectives = 0;     // started so far
  bool failed = false;         // as far as this rank has seen
};

class FlightRecorder {
 public:
  using Clock = std::chrono::steady_clock;
  using Ticks = c10::approx_time_t;
  static constexpr int64_t kCapacity = 256;

  /// Returns the group with these ranks, which lives as long as this.
  FlightGroup& group(const std::vector<int64_t>& ranks, int64_t group_rank);
  /// The group has been rebuilt: it counts from 0, and may fail again.
  void renew(const std::vector<int64_t>& ranks);

  /// Returns the number of a new entry; -1 in a group that has failed.
  int64_t start(FlightGroup& group, const CollectiveCall& call);
  /// Sets when a call ended, if that is not known.
  void note_done(int64_t number);
  void end(int64_t number, FlightState state);
  /// The same with a reason. `breaks` says that the group is broken; if this
  /// rank had not seen that, it prints its record.
  void end(
      int64_t number, FlightState state, FlightGroup& group,
      const std::string& error, bool breaks);
  /// Prints the record because an exception ends this rank, unless that was
  /// done since its last call.
  void rank_failed(const std::exception_ptr& exception) noexcept;

  std::vector<FlightEntry> entries() const;

 private:
  // What every call needs comes first, in two lines of the cache.
  struct alignas(64) Slot {
    static constexpr size_t kCounts = 8;
    static constexpr size_t kCause = 40;

    int64_t number = -1;
    int64_t sequence = -1;
    const FlightGroup* group = nullptr;
    Ticks started = 0;
    Ticks ended = 0;  // 0: not ended
    CallOutline outline;
    FlightState state = FlightState::kStarted;
    bool in_backward = false;
    bool truncated = false;  // there are more counts
    uint8_t input_size = 0;
    uint8_t output_size = 0;
    std::array<char, kCause> cause{};  // ends with a 0
    std::array<int64_t, kCounts> input_counts{};
    std::array<int64_t, kCounts> output_counts{};
  };

  static void fill(Slot& slot, const CollectiveCall& call);
  Slot* find(int64_t number);
  FlightEntry entry_of(const Slot& slot) const;
  void print(const std::function<std::string()>& why) const noexcept;

  const Clock::time_point begin_ = Clock::now();
  const Ticks begin_ticks_ = c10::getApproximateTime();
  mutable std::mutex mutex_;  // guards all below, and the groups' fields
  std::vector<Slot> slots_;   // number n stands at n % kCapacity
  int64_t started_ = 0;
  int64_t printed_ = 0;                    // started_ when last printed
  std::map<int64_t, std::string> errors_;  // by number
  std::map<std::vector<int64_t>, std::unique_ptr<FlightGroup>> groups_;
};

/// The entry of one call under way. The first end counts.
class FlightCall {
 public:
  FlightCall() = default;
  FlightCall(
      const std::shared_ptr<FlightRecorder>& recorder, FlightGroup& group,
      const CollectiveCall& call);

  void note_done();
  void complete();
  void give_up();
  /// Waiting threw.
  void fail(const std::exception_ptr& exception);
  /// Starting threw: an engine's DistBackendError says that the group is
  /// broken, anything else concerns the call alone.
  void refuse(const std::exception_ptr& exception);

 private:
  std::shared_ptr<FlightRecorder> recorder_;  // null: ended, or not recorded
  FlightGroup* group_ = nullptr;
  int64_t number_ = -1;
};

}  // namespace tessera::detail::inline comm_layer
