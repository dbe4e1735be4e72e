// The flight record: the last calls of this rank, for when one goes wrong.
//
// Every rank keeps its last 256 calls, always. The environment variable
// TESSERA_FLIGHT_RECORDER says where a rank prints them when a call fails, see
// docs/05_explain.md. For what all calls cost, and why, see CommLog.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <tessera/export.h>

namespace tessera {

/// How far a call has come on this rank.
enum class FlightState : uint8_t {
  kStarted,    // under way, or not waited for yet
  kCompleted,  // waited for
  kFailed,     // waited for; threw
  kGivenUp,    // an exception passed through its Work
  kRefused,    // threw when it was to start
};

/// One call of this rank to a Communicator of several ranks, made by the user
/// or by the library. Holds no values of tensors.
struct FlightEntry {
  /// This rank; global, as are the group's.
  int64_t rank = 0;
  std::vector<int64_t> ranks;
  /// How many calls this rank made before, in any group.
  int64_t number = 0;
  /// How many collectives the group made before, as errors count them ("call
  /// 17"); -1 for a send or receive.
  int64_t sequence = -1;
  /// "all_reduce".
  std::string kind;
  /// "all_reduce(f32[1024], sum)"; of counts the first 8.
  std::string call;
  /// What led to it, as CommLogEntry::cause; the first 39 characters.
  std::string cause;
  bool in_backward = false;
  FlightState state = FlightState::kStarted;
  /// Since this rank's world began.
  std::chrono::microseconds started{};
  /// From there to the end; nothing while it is under way.
  std::optional<std::chrono::microseconds> took;
  /// Why it failed or was refused, else "".
  std::string error;
};

/// Returns the last 256 calls of this rank, the newest last. A group whose
/// failure this rank has seen records no further calls, so that what led to it
/// stays.
/// Example: for (const auto& entry : flight_record()) {
///            std::cerr << to_string(entry) << '\n'; }
TESSERA_API std::vector<FlightEntry> flight_record();

/// Prints "started", "completed", "failed", "given up" or "refused".
TESSERA_API std::string to_string(FlightState state);
/// Prints "rank 2: call 17 on group {0, 2}: all_reduce(f32[8], sum), aten::mm,
/// started 12.304 ms, failed after 50.120 ms: waited for rank 0", without
/// control characters.
TESSERA_API std::string to_string(const FlightEntry& entry);
/// Prints one JSON object on one line; times in microseconds.
TESSERA_API std::string to_json(const FlightEntry& entry);

}  // namespace tessera
