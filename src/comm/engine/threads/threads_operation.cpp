// How ranks meet at an operation and move its data.
#include <algorithm>
#include <iterator>

#include <ATen/core/LegacyTypeDispatch.h>

#include "comm/call/rank_errors.h"
#include "comm/engine/threads/threads.h"

namespace tessera::detail {
namespace {

// Below this many bytes the last rank to arrive moves everything itself, which
// costs less than waking the others to share the work.
constexpr int64_t kOnePartBytes = 64 * 1024;

std::shared_ptr<Operation> make_operation(
    ThreadsGroup& group, std::string label, std::vector<int64_t> ranks) {
  auto operation = std::make_shared<Operation>();
  operation->group = &group;
  operation->label = std::move(label);
  operation->ranks = std::move(ranks);
  operation->calls.resize(operation->ranks.size());
  operation->points.resize(operation->ranks.size());
  operation->callers.resize(operation->ranks.size());
  return operation;
}

Calls calls_of(const Operation& operation) {
  Calls calls;
  calls.reserve(operation.calls.size());
  for (const auto& call : operation.calls) {
    calls.push_back(&*call);
  }
  return calls;
}

std::string caller_text(const Operation& operation, size_t slot) {
  return "rank " + std::to_string(operation.ranks[slot]) + " called " +
         describe(*operation.calls[slot]);
}

// Why the calls of two slots cannot meet, or nothing.
std::string conflict(const Operation& operation, size_t a, size_t b) {
  const CollectiveCall& call_a = *operation.calls[a];
  const CollectiveCall& call_b = *operation.calls[b];
  const std::string topic = disagreement(
      facts_of(call_a, static_cast<int64_t>(b)),
      facts_of(call_b, static_cast<int64_t>(a)));
  if (!topic.empty()) {
    return "ranks disagree on " + topic + "; " + caller_text(operation, a) +
           ", " + caller_text(operation, b) +
           "; every rank of a group must make the same calls in the same order";
  }
  if (shares_memory(call_a, call_b)) {
    return "ranks share memory that is written; " + caller_text(operation, a) +
           ", " + caller_text(operation, b) +
           "; give every rank a tensor of its own";
  }
  return "";
}

// Compares a new call with those that are here. Agreement is transitive but
// for splits and memory, which every pair must be asked about.
std::string find_conflict(const Operation& operation, size_t slot) {
  for (size_t other = 0; other < operation.calls.size(); ++other) {
    if (other == slot || !operation.calls[other].has_value()) {
      continue;
    }
    const std::string text =
        conflict(operation, std::min(slot, other), std::max(slot, other));
    if (!text.empty()) {
      return operation.label + ": " + text;
    }
  }
  return "";
}

size_t part_count(const Operation& operation) {
  const CollectiveCall& call = *operation.calls[0];
  if (call.kind == CallKind::kBarrier) {
    return 0;
  }
  const bool together = is_point_to_point(call.kind) ||
                        !call.sample().is_cpu() ||
                        bytes_written(calls_of(operation)) <= kOnePartBytes;
  return together ? 1 : operation.calls.size();
}

// Runs one part, or all of them where the operation counts as one part.
std::vector<StreamPoint> move_data(const Operation& operation, size_t part) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const Calls calls = calls_of(operation);
  const bool all = operation.parts.size() == 1;
  enter_parts(calls, operation.points);
  for (size_t i = all ? 0 : part; i < (all ? calls.size() : part + 1); ++i) {
    run_part(calls, static_cast<int64_t>(i));
  }
  return leave_parts(calls);
}

}  // namespace

bool Operation::complete() const {
  return ready && error.empty() &&
         finished == static_cast<int64_t>(parts.size());
}

std::vector<int64_t> Operation::missing() const {
  std::vector<int64_t> result;
  for (size_t slot = 0; slot < calls.size(); ++slot) {
    if (!calls[slot].has_value()) {
      result.push_back(ranks[slot]);
    }
  }
  return result;
}

Ticket ThreadsWorld::find_call(ThreadsGroup& group, int64_t place) {
  const uint64_t sequence = group.next[static_cast<size_t>(place)]++;
  std::shared_ptr<Operation>& operation = group.calls[sequence];
  if (operation == nullptr) {
    operation =
        make_operation(group, "call " + std::to_string(sequence), group.ranks);
    operation->sequence = sequence;
  }
  return {operation, place};
}

Ticket ThreadsWorld::find_message(
    ThreadsGroup& group, int64_t place, const CollectiveCall& call) {
  const bool sends = call.kind == CallKind::kSend;
  const int64_t slot = sends ? 0 : 1;
  const int64_t src = sends ? place : call.peer;
  const int64_t dst = sends ? call.peer : place;
  auto& queue = group.messages[{src, dst, call.tag}];
  if (queue.empty() ||
      queue.front()->calls[static_cast<size_t>(slot)].has_value()) {
    queue.push_back(make_operation(
        group, "message",
        {group.ranks[static_cast<size_t>(src)],
         group.ranks[static_cast<size_t>(dst)]}));
    return {queue.back(), slot};
  }
  Ticket ticket{queue.front(), slot};
  queue.pop_front();
  if (queue.empty()) {
    group.messages.erase({src, dst, call.tag});
  }
  return ticket;
}

Ticket ThreadsWorld::submit(
    ThreadsGroup& group, int64_t place, CollectiveCall call) {
  std::optional<StreamPoint> point = mark_stream(call);
  Lock lock(mutex_);
  check_may_call(group, place, call);
  check_one_caller(group, place, call);
  const Ticket ticket = is_point_to_point(call.kind)
                            ? find_message(group, place, call)
                            : find_call(group, place);
  const auto slot = static_cast<size_t>(ticket.slot);
  ticket.operation->calls[slot] = std::move(call);
  ticket.operation->points[slot] = std::move(point);
  ticket.operation->callers[slot] = std::this_thread::get_id();
  arrive(lock, ticket);
  return ticket;
}

void ThreadsWorld::arrive(Lock& lock, const Ticket& ticket) {
  Operation& operation = *ticket.operation;
  ++progress_;
  ++operation.arrived;
  const std::string text =
      find_conflict(operation, static_cast<size_t>(ticket.slot));
  if (!text.empty()) {
    fail_operation(operation, text);
    return break_group(*operation.group, text);
  }
  for (const int64_t rank : operation.missing()) {
    if (ranks_[static_cast<size_t>(rank)].ended) {
      return break_group(*operation.group, left_text(operation, rank));
    }
  }
  if (operation.arrived == static_cast<int64_t>(operation.calls.size()) &&
      !operation.withdrawn) {
    make_ready(lock, ticket);
  }
}

void ThreadsWorld::make_ready(Lock& lock, const Ticket& last) {
  Operation& operation = *last.operation;
  if (!is_point_to_point(last.call().kind)) {
    operation.group->calls.erase(operation.sequence);
  }
  operation.parts.assign(part_count(operation), Operation::Part::kOpen);
  operation.ready = true;
  if (operation.parts.size() == 1) {
    return run_part_unlocked(lock, operation, 0);
  }
  wake(operation);
}

void ThreadsWorld::run_open_parts(Lock& lock, const Ticket& ticket) {
  Operation& operation = *ticket.operation;
  if (!operation.ready || !operation.error.empty()) {
    return;
  }
  const size_t count = operation.parts.size();
  for (size_t i = 0; i < count && operation.error.empty(); ++i) {
    const size_t part = (static_cast<size_t>(ticket.slot) + i) % count;
    if (operation.parts[part] == Operation::Part::kOpen) {
      run_part_unlocked(lock, operation, part);
    }
  }
}

void ThreadsWorld::run_part_unlocked(
    Lock& lock, Operation& operation, size_t part) {
  operation.parts[part] = Operation::Part::kRunning;
  ++operation.running;
  lock.unlock();
  std::string error;
  std::vector<StreamPoint> ends;
  try {
    ends = move_data(operation, part);
  } catch (...) {
    error = "moving its data failed: " + message_of(std::current_exception());
  }
  lock.lock();
  --operation.running;
  ++operation.finished;
  ++progress_;
  operation.parts[part] = Operation::Part::kFinished;
  std::move(ends.begin(), ends.end(), std::back_inserter(operation.ends));
  if (!error.empty()) {
    fail_operation(operation, error);
    break_group(*operation.group, error);
  }
  if (operation.complete() || !operation.error.empty()) {
    wake(operation);
  }
}

namespace {

// Lists a thread that waits for a collective of its own. Made and destroyed
// under the lock.
class WaitingThread {
 public:
  explicit WaitingThread(const Ticket& ticket) {
    const Operation& operation = *ticket.operation;
    const auto slot = static_cast<size_t>(ticket.slot);
    if (!is_point_to_point(ticket.call().kind) &&
        operation.callers[slot] == std::this_thread::get_id()) {
      list_ = &operation.group->waiting[slot];
      list_->push_back(std::this_thread::get_id());
    }
  }
  ~WaitingThread() {
    if (list_ != nullptr) {
      list_->erase(
          std::find(list_->begin(), list_->end(), std::this_thread::get_id()));
    }
  }
  WaitingThread(const WaitingThread&) = delete;
  WaitingThread& operator=(const WaitingThread&) = delete;

 private:
  std::vector<std::thread::id>* list_ = nullptr;
};

}  // namespace

void ThreadsWorld::wait(const Ticket& ticket) {
  Operation& operation = *ticket.operation;
  CollectiveCall mine;  // ends after the lock: a rank frees its own tensors
  Lock lock(mutex_);
  const WaitingThread waiting(ticket);
  const auto limit = std::chrono::steady_clock::now() + deadline_;
  while (true) {
    run_open_parts(lock, ticket);
    if (operation.complete()) {
      mine = std::move(*operation.calls[static_cast<size_t>(ticket.slot)]);
      return join_parts(mine, operation.ends);
    }
    if (operation.settled()) {
      throw_failure(
          ticket.call(), *operation.group, ticket.rank(), operation.error);
    }
    block(lock, ticket, limit);
  }
}

bool ThreadsWorld::advance(const Ticket& ticket) {
  Lock lock(mutex_);
  run_open_parts(lock, ticket);
  return ticket.operation->complete() || ticket.operation->settled();
}

}  // namespace tessera::detail
