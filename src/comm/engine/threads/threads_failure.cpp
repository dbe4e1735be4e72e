// How ranks wait for each other, and what ends a wait that cannot succeed: a
// rank that failed or left, a deadlock, a deadline.
#include <algorithm>
#include <utility>

#include <c10/util/Exception.h>

#include "comm/call/rank_errors.h"
#include "comm/engine/threads/threads.h"

namespace tessera::detail::inline comm_layer {
namespace {

// How long all ranks must be blocked before it counts as a deadlock: time for a
// thread that a rank started itself to make its first call, on a busy machine
// too.
constexpr auto kDeadlockGrace = std::chrono::seconds(1);

std::string rank_list(const std::vector<int64_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  for (const int64_t rank : ranks) {
    text += c10::str(" ", rank);
  }
  return text;
}

bool contains(const std::vector<int64_t>& values, int64_t value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

// The operations that some rank has yet to join.
std::vector<Operation*> pending(const ThreadsGroup& group) {
  std::vector<Operation*> operations;
  for (const auto& [sequence, operation] : group.calls) {
    operations.push_back(operation.get());
  }
  for (const auto& [key, queue] : group.messages) {
    for (const auto& operation : queue) {
      operations.push_back(operation.get());
    }
  }
  return operations;
}

}  // namespace

std::string left_text(const Operation& operation, int64_t rank) {
  return "rank " + std::to_string(rank) +
         " returned from its body without making " + operation.label +
         "; every rank of a group must make the same calls in the same order";
}

void throw_failure(
    const CollectiveCall& call, const ThreadsGroup& group, int64_t rank,
    const std::string& reason) {
  TORCH_CHECK_WITH(
      DistBackendError, false, describe(call), " on ",
      describe_group(group.ranks), ", rank ", rank, ": ", reason);
}

void ThreadsWorld::check_may_call(
    ThreadsGroup& group, int64_t group_rank, const CollectiveCall& call) {
  const int64_t rank = group.ranks[static_cast<size_t>(group_rank)];
  flush_withdrawn(rank);
  if (!is_own_thread(rank)) {
    foreign_threads_ = true;
  }
  if (ranks_[static_cast<size_t>(rank)].ended) {
    throw_failure(
        call, group, rank,
        "this rank's body has ended; make no calls after run_ranks()");
  }
  if (is_failed(group)) {
    throw_failure(call, group, rank, failure_);
  }
  if (!group.broken.empty()) {
    throw_failure(
        call, group, rank,
        "the group is broken by an earlier failure: " + group.broken);
  }
}

// The order of a rank's calls is what ranks share, and two of its threads that
// call at once have none.
void ThreadsWorld::check_one_caller(
    ThreadsGroup& group, int64_t group_rank, const CollectiveCall& call) {
  const auto& waiting = group.waiting[static_cast<size_t>(group_rank)];
  const bool alone =
      std::all_of(waiting.begin(), waiting.end(), [](std::thread::id other) {
        return other == std::this_thread::get_id();
      });
  if (is_point_to_point(call.kind) || alone) {
    return;
  }
  const int64_t rank = group.ranks[static_cast<size_t>(group_rank)];
  const std::string text = two_callers_text(call, rank);
  break_group(group, text);
  throw_failure(call, group, rank, text);
}

// After a failure only groups that were rebuilt without the failed go on.
bool ThreadsWorld::is_failed(const ThreadsGroup& group) const {
  return !failure_.empty() &&
         (group.generation == 0 ||
          std::any_of(
              group.ranks.begin(), group.ranks.end(), [&](int64_t rank) {
                return ranks_[static_cast<size_t>(rank)].failed;
              }));
}

void ThreadsWorld::block(
    Lock& lock, const Ticket& ticket,
    std::chrono::steady_clock::time_point limit) {
  Operation& operation = *ticket.operation;
  Rank& me = ranks_[static_cast<size_t>(ticket.rank())];
  if (operation.running > 0) {
    me.wake.wait(lock);
    return;
  }
  const bool own = is_own_thread(ticket.rank());
  me.waits_for = own ? &operation : nullptr;
  const bool stuck = own && is_deadlock();
  const auto now = std::chrono::steady_clock::now();
  const uint64_t before = progress_;
  const bool late = me.wake.wait_until(
                        lock, stuck ? std::min(limit, now + kDeadlockGrace)
                                    : limit) == std::cv_status::timeout;
  if (late && stuck && progress_ == before && is_deadlock()) {
    report_deadlock();
  } else if (
      late && operation.error.empty() && !operation.ready &&
      std::chrono::steady_clock::now() >= limit) {
    report_deadline(operation);
  }
  me.waits_for = nullptr;
}

void ThreadsWorld::report_deadline(Operation& operation) {
  break_group(
      *operation.group,
      operation.label + " did not complete within the deadline of " +
          std::to_string(deadline_.count()) + " ms; waited for " +
          rank_list(operation.missing()) +
          "; raise InitOptions.deadline if the work takes longer");
}

bool ThreadsWorld::is_deadlock() const {
  return !foreign_threads_ &&
         std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) {
           const Operation* operation = rank.waits_for;
           return rank.ended || (operation != nullptr && !operation->ready &&
                                 operation->error.empty());
         });
}

void ThreadsWorld::report_deadlock() {
  std::string text = "deadlock, every rank waits for a call that none makes:";
  for (size_t r = 0; r < ranks_.size(); ++r) {
    const Operation* operation = ranks_[r].waits_for;
    text += c10::str(r == 0 ? " rank " : "; rank ", r);
    if (operation == nullptr) {
      text += " has ended";
      continue;
    }
    const auto slot = std::find_if(
        operation->calls.begin(), operation->calls.end(),
        [&](const auto& call) {
          const auto at = static_cast<size_t>(&call - &operation->calls[0]);
          return call.has_value() &&
                 operation->ranks[at] == static_cast<int64_t>(r);
        });
    text += " waits in " + describe(**slot) + " on " +
            describe_group(operation->group->ranks) + ", " + operation->label;
  }
  break_all_groups(text);
}

void ThreadsWorld::withdraw(const Ticket& ticket) {
  Operation& operation = *ticket.operation;
  Rank& me = ranks_[static_cast<size_t>(ticket.rank())];
  Lock lock(mutex_);
  if (!operation.ready && operation.error.empty()) {
    operation.withdrawn = true;
    me.withdrawn.push_back(ticket.operation);
    return;
  }
  run_open_chunks(lock, ticket);
  me.wake.wait(lock, [&] {
    return operation.complete() || operation.buffers_are_free();
  });
}

void ThreadsWorld::flush_withdrawn(int64_t rank, const std::string& reason) {
  Rank& me = ranks_[static_cast<size_t>(rank)];
  for (const auto& operation : std::exchange(me.withdrawn, {})) {
    const std::string text =
        !reason.empty()
            ? reason
            : operation->label + " was given up by rank " +
                  std::to_string(rank) +
                  " while an exception passed through it; wait() for a Work "
                  "before code that may throw";
    fail_operation(*operation, text);
    break_group(*operation->group, text);
  }
}

void ThreadsWorld::leave(int64_t rank) {
  const Lock lock(mutex_);
  flush_withdrawn(rank);
  ranks_[static_cast<size_t>(rank)].ended = true;
  ++progress_;
  for (auto& [ranks, group] : groups_) {
    for (const Operation* operation : pending(*group)) {
      if (contains(operation->missing(), rank)) {
        break_group(*group, left_text(*operation, rank));
        break;
      }
    }
  }
  wake_all();
}

void ThreadsWorld::fail(int64_t rank, std::exception_ptr exception) {
  const std::string message = message_of(exception);
  const Lock lock(mutex_);
  ranks_[static_cast<size_t>(rank)].ended = true;
  ranks_[static_cast<size_t>(rank)].failed = true;
  ++progress_;
  if (exception_ == nullptr) {
    exception_ = std::move(exception);
    failed_rank_ = rank;
    failure_ = "rank " + std::to_string(rank) + " failed: " + message;
    break_all_groups(failure_);
  }
  flush_withdrawn(rank, failure_);
  wake_all();
}

void ThreadsWorld::rethrow_failure() {
  if (exception_ != nullptr) {
    rethrow_with_rank(
        std::exchange(exception_, nullptr),
        "rank " + std::to_string(failed_rank_) + " of " +
            std::to_string(ranks_.size()));
  }
}

void ThreadsWorld::break_group(ThreadsGroup& group, const std::string& reason) {
  if (group.broken.empty()) {
    group.broken = reason;
  }
  for (Operation* operation : pending(group)) {
    fail_operation(*operation, reason);
  }
  group.calls.clear();
  group.messages.clear();
}

void ThreadsWorld::break_all_groups(const std::string& reason) {
  for (auto& [ranks, group] : groups_) {
    break_group(*group, reason);
  }
}

void ThreadsWorld::fail_operation(
    Operation& operation, const std::string& reason) {
  if (operation.error.empty()) {
    operation.error = reason;
  }
  wake(operation);
}

void ThreadsWorld::wake(const Operation& operation) {
  for (const int64_t rank : operation.ranks) {
    ranks_[static_cast<size_t>(rank)].wake.notify_all();
  }
}

void ThreadsWorld::wake_all() {
  for (Rank& rank : ranks_) {
    rank.wake.notify_all();
  }
}

}  // namespace tessera::detail::inline comm_layer
