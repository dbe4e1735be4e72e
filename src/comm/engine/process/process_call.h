// One call on its way between processes; see Note [A call between processes].
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "comm/call/call.h"
#include "comm/call/stream_order.h"
#include "comm/engine/process/scratch.h"
#include "comm/engine/process/transport.h"

namespace tessera::detail::inline comm_layer {

/// A group as one of its ranks knows it.
class ProcessGroupState {
 public:
  ProcessGroupState(
      std::vector<int64_t> global_ranks, int64_t my_group_rank,
      uint64_t rebuilt)
      : ranks(std::move(global_ranks)),
        group_rank(my_group_rank),
        generation(rebuilt) {}

  const std::vector<int64_t> ranks;  // global, in group order
  const int64_t group_rank;
  const uint64_t generation;         // how often it was rebuilt
  std::unique_ptr<Channel> channel;  // made by the first call
  std::string broken;                // why no further call is possible
  Scratch scratch;
  /// The threads that wait for a collective which they have called.
  std::vector<std::thread::id> waiting;

  /// Calls that reach the channel one after the other: collectives; messages of
  /// one direction, peer and tag.
  struct CallSequence {
    uint64_t calls = 0;  // so far
    uint64_t next = 0;   // the one whose turn it is
  };
  CallSequence& call_sequence_of(const CollectiveCall& call);
  using CallSequenceKey =
      std::tuple<CallKind, int64_t, int64_t>;  // kind, peer, tag
  /// Returns a number for a call sequence of one of its ranks, unlike those of
  /// others.
  uint64_t call_sequence_id(const CallSequenceKey& key) const;
  /// Adds how many calls this rank has made, by call_sequence_id().
  void count_calls(std::map<uint64_t, uint64_t>& calls) const;

  int64_t size() const { return static_cast<int64_t>(ranks.size()); }
  int64_t rank() const { return ranks[static_cast<size_t>(group_rank)]; }
  /// Returns the number that its ranks know it by.
  uint64_t number() const;
  /// Returns the name that its ranks meet under, used once in a world.
  std::string key() const;

 private:
  std::map<CallSequenceKey, CallSequence> call_sequences_;
};

/// What a rank says about its call to another one, as it travels: always of
/// this size, so that calls that differ reach each other.
struct CallRecord {
  static constexpr int64_t kPayload = 256;

  uint64_t group = 0;     // a hash of its ranks
  uint64_t sequence = 0;  // of a collective in its group
  CollectiveFingerprint fingerprint = {};
  char text[128] = {};  // describe(), cut off
  /// Whether all runs that the sender gives and takes fit into payloads. If all
  /// ranks say so, the data has arrived with the records.
  bool small = false;
  alignas(16) char payload[kPayload];
};

/// What ranks disagree on; every rank of the call finds out by itself.
class Mismatch : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

class ProcessCall {
 public:
  using Clock = std::chrono::steady_clock;

  ProcessCall(std::shared_ptr<ProcessGroupState> of, CollectiveCall what);

  ProcessGroupState& group() const { return *group_; }
  const CollectiveCall& call() const { return call_; }
  /// Returns the thread that made the call.
  std::thread::id caller() const { return caller_; }
  /// Prints "call 3", "message".
  const std::string& label() const { return label_; }

  /// Moves on as far as it can without waiting. Throws what ends the call: a
  /// Mismatch, or an error of the channel.
  void advance();
  bool complete() const { return stage_ == Stage::kComplete; }
  bool failed() const { return !error_.empty(); }
  const std::string& error() const { return error_; }
  /// Ends the call without success; the first reason counts.
  void fail(const std::string& reason);
  /// Returns the other global ranks that must make this call; none once all
  /// have made it.
  std::vector<int64_t> partners() const;
  /// Closes the channel and returns the global ranks that have not been heard
  /// of. Only then: until the channel is closed, a thread of its own may write
  /// what they say.
  std::vector<int64_t> close_and_name_missing();
  /// Tells whether a rank that made these calls has made its part of this one.
  bool is_among(const std::map<uint64_t, uint64_t>& calls) const;
  /// Tells whether the transfers of a failed call have ended.
  bool buffers_are_free();
  /// Throws why the call failed.
  [[noreturn]] void raise() const;

 private:
  enum class Stage : uint8_t {
    kQueued,
    kFingerprints,
    kData,
    kSlices,
    kComplete
  };

  /// Bytes that go to a place or come from it.
  struct Run {
    char* data = nullptr;
    int64_t bytes = 0;
  };

  bool has_turn() const;
  void end_turn();
  void start_fingerprints();
  CallRecord record() const;
  void address(CallRecord& record, int64_t group_rank) const;
  int64_t group_rank_of(size_t i) const;
  // What goes from sender to receiver, and back.
  int64_t forward_tag() const { return 2 * call_.tag; }
  int64_t backward_tag() const { return 2 * call_.tag + 1; }
  void check_fingerprints() const;
  bool is_small() const;
  bool came_with_fingerprints() const;
  void take_payloads();
  bool holds_own(int64_t group_rank) const;
  bool has_landing() const;
  std::vector<int64_t> counts_that_travel(std::vector<int64_t> counts) const;
  Run given_to(int64_t group_rank) const;
  Run taken_from(int64_t group_rank) const;
  Run run_of(
      char* data, const std::vector<int64_t>& counts, int64_t group_rank) const;
  void start_data();
  void start_reduction();
  void finish_data();
  std::vector<const void*> partials(const char* first, int64_t stride) const;
  void reduce(
      const std::vector<const void*>& inputs, void* to, int64_t numel) const;
  bool all_reduces_at_once() const;
  bool slices_follow() const;
  std::vector<int64_t> slices() const;
  std::vector<int64_t> bytes(const std::vector<int64_t>& counts) const;
  void move_to_host();
  void finish();
  std::vector<int64_t> only(int64_t group_rank, int64_t count) const;

  std::shared_ptr<ProcessGroupState> group_;
  CollectiveCall call_;
  std::thread::id caller_ = std::this_thread::get_id();
  std::string label_;
  ProcessGroupState::CallSequence& call_sequence_;
  uint64_t sequence_;  // in its call sequence
  Stage stage_ = Stage::kQueued;
  TransferPtr transfer_;
  std::vector<CallRecord> said_;   // to each place
  std::vector<CallRecord> heard_;  // from each place
  at::Tensor device_output_;       // where results go in the end
  at::Tensor gathered_;  // partial values of a reduction, from scratch
  std::vector<StreamPoint> points_;  // what the tensors wait for
  std::string error_;
};

}  // namespace tessera::detail::inline comm_layer
