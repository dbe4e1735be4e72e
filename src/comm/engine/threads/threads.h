// The threads engine: ranks are threads of this process.
//
// Ranks meet at operations. A rank that makes a call looks up the operation of
// its group that has its sequence number (a send or receive: its peer and tag),
// leaves its call there and goes on. The last one to arrive makes the operation
// ready. Its data movement is cut into parts, which any rank that waits may
// claim, so nothing needs a thread of its own and no rank waits for another
// that has better things to do. See Note [One lock].
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "comm/call/stream_order.h"
#include "comm/engine/engine.h"

namespace tessera::detail::inline comm_layer {

struct ThreadsGroup;

/// One collective, or one send with its receive. A slot is one rank's share in
/// it: the place in the group for a collective; 0 sends, 1 receives.
struct Operation {
  enum class ChunkState : uint8_t { kOpen, kRunning, kFinished };

  ThreadsGroup* group = nullptr;
  uint64_t sequence = 0;                             // of a collective
  std::string label;                                 // "call 3", "message"
  std::vector<int64_t> ranks;                        // global, per slot
  std::vector<std::optional<CollectiveCall>> calls;  // per slot
  std::vector<std::optional<StreamPoint>> points;    // of the calls
  std::vector<std::thread::id> callers;              // that made the calls
  int64_t arrived = 0;
  bool ready = false;      // all calls are here and agree
  bool withdrawn = false;  // a rank gave its call up; never gets ready
  std::vector<ChunkState> chunks;
  std::vector<StreamPoint> ends;  // of the parts
  int64_t running = 0;
  int64_t finished = 0;
  std::string error;  // why it will never complete

  bool buffers_are_free() const { return !error.empty() && running == 0; }
  /// Tells whether all data have moved, so that every tensor is free again.
  bool complete() const;
  /// Returns the global ranks that have yet to call.
  std::vector<int64_t> missing() const;
};

/// One rank's share in an operation.
struct Ticket {
  std::shared_ptr<Operation> operation;
  int64_t slot;

  const CollectiveCall& call() const {
    return *operation->calls[static_cast<size_t>(slot)];
  }
  int64_t rank() const { return operation->ranks[static_cast<size_t>(slot)]; }
};

/// A list of ranks and what they have in flight.
struct ThreadsGroup {
  using MessageKey = std::tuple<int64_t, int64_t, int64_t>;  // src, dst, tag

  std::vector<int64_t> ranks;
  uint64_t generation = 0;     // how often it was rebuilt
  std::vector<uint64_t> next;  // sequence number, per place
  /// The threads that wait for a collective which they have called, per place.
  std::vector<std::vector<std::thread::id>> waiting;
  std::map<uint64_t, std::shared_ptr<Operation>> calls;  // not ready yet
  std::map<MessageKey, std::deque<std::shared_ptr<Operation>>> messages;
  std::string broken;  // why no further call is possible
};

/// The state that all ranks share.
///
/// Note [One lock]: everything here is guarded by one mutex, held for a few
/// map operations per call and never while data moves. One lock makes failure
/// simple: whoever sees one marks every operation concerned at once, and
/// "every rank is blocked" is a fact, not a guess.
class ThreadsWorld : public std::enable_shared_from_this<ThreadsWorld> {
 public:
  ThreadsWorld(int64_t size, std::chrono::milliseconds deadline);

  int64_t size() const { return static_cast<int64_t>(ranks_.size()); }
  std::chrono::milliseconds deadline();
  void set_deadline(std::chrono::milliseconds deadline);
  /// What a rank's handles of one list of ranks share: the group as the rank
  /// has last rebuilt it. Groups live as long as the world.
  using GroupSlot = std::atomic<ThreadsGroup*>;
  GroupSlot& group(const std::vector<int64_t>& ranks, int64_t rank);
  void rebuild(const std::vector<int64_t>& ranks, int64_t rank);

  Ticket submit(ThreadsGroup& group, int64_t group_rank, CollectiveCall call);
  /// Runs parts and blocks until the ticket's tensors are free; throws the
  /// operation's error.
  void wait(const Ticket& ticket);
  /// Runs open parts; tells whether wait() would return or throw at once.
  bool advance(const Ticket& ticket);
  /// Gives up a call because an exception is passing through its rank. Parts
  /// that can run are run; otherwise the operation fails, with that exception's
  /// message if it leaves the rank.
  void withdraw(const Ticket& ticket);

  /// Marks the normal end of a rank.
  void leave(int64_t rank);
  /// Marks the end of a rank by an exception; frees every other rank.
  void fail(int64_t rank, std::exception_ptr exception);
  /// Rethrows the exception of the rank that failed first, if any, with its
  /// rank. For the thread that has joined all ranks.
  void rethrow_failure();

 private:
  struct Rank {
    std::condition_variable wake;
    const Operation* waits_for = nullptr;
    bool ended = false;
    bool failed = false;
    std::vector<std::shared_ptr<Operation>> withdrawn;
    std::map<std::vector<int64_t>, GroupSlot> slots;  // of its groups
  };
  using Lock = std::unique_lock<std::mutex>;
  using GroupKey = std::pair<std::vector<int64_t>, uint64_t>;  // generation

  ThreadsGroup* find_group(
      const std::vector<int64_t>& ranks, uint64_t generation);
  Ticket find_call(ThreadsGroup& group, int64_t group_rank);
  Ticket find_message(
      ThreadsGroup& group, int64_t group_rank, const CollectiveCall& call);
  void check_may_call(
      ThreadsGroup& group, int64_t group_rank, const CollectiveCall& call);
  void check_one_caller(
      ThreadsGroup& group, int64_t group_rank, const CollectiveCall& call);
  bool is_failed(const ThreadsGroup& group) const;
  void arrive(Lock& lock, const Ticket& ticket);
  void make_ready(Lock& lock, const Ticket& last);
  void run_open_chunks(Lock& lock, const Ticket& ticket);
  void run_chunk_unlocked(Lock& lock, Operation& operation, size_t chunk);
  void block(
      Lock& lock, const Ticket& ticket,
      std::chrono::steady_clock::time_point limit);

  bool is_own_thread(int64_t rank) const;
  bool is_deadlock() const;
  void report_deadlock();
  void report_deadline(Operation& operation);
  void flush_withdrawn(int64_t rank, const std::string& reason = "");
  void break_group(ThreadsGroup& group, const std::string& reason);
  void break_all_groups(const std::string& reason);
  void fail_operation(Operation& operation, const std::string& reason);
  void wake(const Operation& operation);
  void wake_all();

  std::mutex mutex_;
  std::chrono::milliseconds deadline_;
  std::vector<Rank> ranks_;
  std::map<GroupKey, std::unique_ptr<ThreadsGroup>> groups_;
  uint64_t progress_ = 0;         // counts calls, parts and ends
  bool foreign_threads_ = false;  // calls came from threads that are no ranks
  std::string failure_;           // "rank 2 failed: ..."
  int64_t failed_rank_ = -1;
  std::exception_ptr exception_;
};

/// One rank of a ThreadsWorld.
class ThreadsRank : public WorldImpl {
 public:
  ThreadsRank(std::shared_ptr<ThreadsWorld> world, int64_t rank)
      : world_(std::move(world)), rank_(rank) {}

  int64_t rank() const override { return rank_; }
  int64_t size() const override { return world_->size(); }
  std::string engine() const override { return "threads"; }
  std::chrono::milliseconds deadline() const override {
    return world_->deadline();
  }
  void set_deadline(std::chrono::milliseconds deadline) override {
    world_->set_deadline(deadline);
  }
  std::shared_ptr<CommunicatorImpl> communicator(
      const std::vector<int64_t>& ranks) override;
  void rebuild(const std::vector<int64_t>& ranks) override {
    world_->rebuild(ranks, rank_);
  }
  const std::shared_ptr<ThreadsWorld>& world() const { return world_; }

 private:
  std::shared_ptr<ThreadsWorld> world_;
  int64_t rank_;
};

/// Prints "rank 2 returned from its body without making call 3".
std::string left_text(const Operation& operation, int64_t rank);
/// Throws why a rank's call failed.
[[noreturn]] void throw_failure(
    const CollectiveCall& call, const ThreadsGroup& group, int64_t rank,
    const std::string& reason);

/// Returns the rank that this thread is, or null.
const std::shared_ptr<ThreadsRank>& current_thread_rank();

/// Runs `body` on `n` rank threads; see run_ranks() in world.h.
void run_thread_ranks(
    int64_t n, const std::function<void()>& body,
    std::chrono::milliseconds deadline);

/// Returns the rank of a world of one, shared by all threads of the process
/// that are no ranks.
const std::shared_ptr<ThreadsRank>& lone_rank();

}  // namespace tessera::detail::inline comm_layer
