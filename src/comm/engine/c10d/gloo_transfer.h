// What processes connected by Gloo carry out: transfers of several legs, and
// messages.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "comm/engine/process/transport.h"

namespace tessera::detail::inline comm_layer {

using WorkPtr = c10::intrusive_ptr<::c10d::Work>;

// Longer than any deadline: the engine ends waits, and says why.
inline constexpr auto kWaitTimeout = std::chrono::hours(24 * 365);

inline constexpr const char* kClosed =
    "the connections of the group are closed";

/// Bytes from or to a place.
struct Leg {
  bool sends;
  void* data;
  int64_t size;
  int64_t group_rank;

  WorkPtr start(::c10d::Backend& group, int tag) const;
};

/// What a thread carries out and its rank asks about.
class Progress {
 public:
  /// Throws why it failed.
  bool done() const;
  void succeed() { state_ = State::kDone; }
  /// Has no effect after an end.
  void fail(const std::string& error);

 private:
  enum class State : uint8_t { kOpen, kDone, kFailed };
  std::atomic<State> state_ = State::kOpen;
  std::string error_;  // written before the state
};

/// Legs of one phase travel together; a phase begins when the one before it is
/// complete.
struct GlooTransfer {
  std::vector<std::vector<Leg>> phases;
  Progress progress;
};

/// A message: its work completes only inside wait(), so a thread waits there.
class Message {
 public:
  Message(Leg leg, int tag) : leg_(leg), tag_(tag) {}
  ~Message() { end(); }
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;

  void start(::c10d::Backend& group);
  /// Ends a message that cannot start.
  void fail(const std::string& error) { progress_.fail(error); }
  /// Ends the wait soon.
  void abort() noexcept;
  /// Lets go of the data, and of the connections.
  void end() noexcept;
  const Progress& progress() const { return progress_; }

 private:
  void wait() noexcept;

  Leg leg_;
  int tag_;
  WorkPtr work_;
  std::thread waiter_;
  Progress progress_;
};

TransferPtr transfer_of(std::shared_ptr<const GlooTransfer> transfer);
TransferPtr transfer_of(std::shared_ptr<const Message> message);

}  // namespace tessera::detail::inline comm_layer
