// Ranks that are processes, over any transport.
//
// Note [A call between processes]
// A call goes through stages; wait() and done() of any call move all calls of
// the process on, so nothing needs a thread of its own.
//   1. fingerprints   every rank sends its own, and a text, to every other one
//              (CallRecord), so both ranks of a pair find a mismatch. Runs of
//              up to 256 bytes travel along, and the call ends
//   2. data    the transfers of the kind; reductions travel as all_to_all and
//              are combined here in rank order, so results repeat bit for bit
//              and equal those of the threads engine
//   3. end     results are copied to an accelerator where they belong there
// What ends a call that cannot complete: a mismatch, an error of the channel,
// an event of another rank, the deadline. The group is broken then: its channel
// is closed, later calls throw at once, and the others are told. The failure of
// a rank breaks all groups; those rebuilt without it go on.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/engine/engine.h"
#include "comm/engine/process/pending_calls.h"
#include "comm/engine/process/transport.h"

namespace tessera::detail::inline comm_layer {

class ProcessCall;
class ProcessGroupState;

class ProcessWorld : public WorldImpl,
                     public std::enable_shared_from_this<ProcessWorld> {
 public:
  ProcessWorld(
      std::unique_ptr<Transport> transport, std::chrono::milliseconds deadline);
  ~ProcessWorld() override;

  int64_t rank() const override { return transport_->rank(); }
  int64_t size() const override { return transport_->size(); }
  std::string engine() const override { return transport_->name(); }
  std::chrono::milliseconds deadline() const override;
  void set_deadline(std::chrono::milliseconds deadline) override;
  std::shared_ptr<CommunicatorImpl> communicator(
      const std::vector<int64_t>& ranks) override;
  void rebuild(const std::vector<int64_t>& ranks) override;

  /// Starts a call; see Note [A call between processes].
  std::shared_ptr<ProcessCall> submit(
      const std::vector<int64_t>& ranks, CollectiveCall call);
  /// Blocks until the call is complete; throws what went wrong.
  void wait(ProcessCall& call);
  /// Moves all calls on; tells whether wait() would return at once.
  bool advance(ProcessCall& call);
  /// Gives a call up: an exception passes through this rank. If that leaves the
  /// rank, its message counts; else the call's group breaks.
  void abandon(const std::shared_ptr<ProcessCall>& call);

  /// Tells the others that this rank has ended, by an error or normally.
  void leave(const std::string& error);
  /// Tells whether another rank has ended by an error.
  bool heard_failure() const;
  Transport& transport() { return *transport_; }

 private:
  using Lock = std::unique_lock<std::mutex>;

  void check_may_call(
      const ProcessGroupState& group, const CollectiveCall& call) const;
  /// Throws where another thread of this rank waits in the group, and breaks
  /// it.
  void check_one_caller(ProcessGroupState& group, const CollectiveCall& call);
  /// Returns why a group cannot work: a rank of it has failed.
  std::string failure_of(const ProcessGroupState& group) const;
  /// Moves a call on; what ends it breaks its group.
  void advance_or_fail(ProcessCall& call);
  void move_all();
  /// The same, unless another thread is at it.
  void try_move_all();
  void hear();
  void hear_failure(int64_t rank, const std::string& text);
  void miss_ended_ranks();
  void flush_withdrawn();
  void report_deadline(ProcessCall& call);
  /// Breaks a group for a reason that was found here, and tells its ranks.
  void break_group(ProcessGroupState& group, const std::string& reason);
  /// The same for a reason that its ranks know.
  void mark_broken(ProcessGroupState& group, const std::string& reason);
  void explain_error(ProcessGroupState& group);

  mutable std::mutex mutex_;  // guards all below, and the network
  std::unique_ptr<Transport> transport_;
  std::chrono::milliseconds deadline_;
  std::map<std::vector<int64_t>, std::shared_ptr<ProcessGroupState>> groups_;
  std::vector<std::shared_ptr<ProcessCall>> active_;
  std::vector<std::shared_ptr<ProcessCall>> withdrawn_;  // see abandon()
  /// The calls of ranks that have returned from their body; see PeerEvent.
  std::map<int64_t, std::map<uint64_t, uint64_t>> ended_;
  std::map<int64_t, std::string> failures_;  // "rank 2 failed: ...", by rank
  std::string first_failure_;
  bool left_ = false;
  /// Ends first: see the destructor.
  PendingCalls pending_{[this] { try_move_all(); }};
};

}  // namespace tessera::detail::inline comm_layer
