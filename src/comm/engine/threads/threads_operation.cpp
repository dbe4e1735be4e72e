// How ranks meet at an operation and move its data.
#include <algorithm>
#include <iterator>

#include <ATen/core/LegacyTypeDispatch.h>

#include "comm/call/rank_errors.h"
#include "comm/engine/threads/threads.h"

namespace tessera::detail::inline comm_layer {
namespace {

// Below this many bytes the last rank to arrive moves everything itself, which
// costs less than waking the others to share the work.
constexpr int64_t kOneChunkBytes = 64 * 1024;

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
  const std::string topic = mismatch(
      fingerprint_of(call_a, static_cast<int64_t>(b)),
      fingerprint_of(call_b, static_cast<int64_t>(a)));
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

size_t chunk_count(const Operation& operation) {
  const CollectiveCall& call = *operation.calls[0];
  if (call.kind == CallKind::kBarrier) {
    return 0;
  }
  const bool together = is_point_to_point(call.kind) ||
                        !call.sample().is_cpu() ||
                        bytes_written(calls_of(operation)) <= kOneChunkBytes;
  return together ? 1 : operation.calls.size();
}

// Runs one part, or all of them where the operation counts as one part.
std::vector<StreamPoint> move_data(const Operation& operation, size_t chunk) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const Calls calls = calls_of(operation);
  const bool all = operation.chunks.size() == 1;
  enter_chunks(calls, operation.points);
  for (size_t i = all ? 0 : chunk; i < (all ? calls.size() : chunk + 1); ++i) {
    run_chunk(calls, static_cast<int64_t>(i));
  }
  return leave_chunks(calls);
}

}  // namespace

bool Operation::complete() const {
  return ready && error.empty() &&
         finished == static_cast<int64_t>(chunks.size());
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

Ticket ThreadsWorld::find_call(ThreadsGroup& group, int64_t group_rank) {
  const uint64_t sequence = group.next[static_cast<size_t>(group_rank)]++;
  std::shared_ptr<Operation>& operation = group.calls[sequence];
  if (operation == nullptr) {
    operation =
        make_operation(group, "call " + std::to_string(sequence), group.ranks);
    operation->sequence = sequence;
  }
  return {operation, group_rank};
}

Ticket ThreadsWorld::find_message(
    ThreadsGroup& group, int64_t group_rank, const CollectiveCall& call) {
  const bool sends = call.kind == CallKind::kSend;
  const int64_t slot = sends ? 0 : 1;
  const int64_t src = sends ? group_rank : call.peer;
  const int64_t dst = sends ? call.peer : group_rank;
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
    ThreadsGroup& group, int64_t group_rank, CollectiveCall call) {
  std::optional<StreamPoint> point = mark_stream(call);
  Lock lock(mutex_);
  check_may_call(group, group_rank, call);
  check_one_caller(group, group_rank, call);
  const Ticket ticket = is_point_to_point(call.kind)
                            ? find_message(group, group_rank, call)
                            : find_call(group, group_rank);
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
  operation.chunks.assign(chunk_count(operation), Operation::ChunkState::kOpen);
  operation.ready = true;
  if (operation.chunks.size() == 1) {
    return run_chunk_unlocked(lock, operation, 0);
  }
  wake(operation);
}

void ThreadsWorld::run_open_chunks(Lock& lock, const Ticket& ticket) {
  Operation& operation = *ticket.operation;
  if (!operation.ready || !operation.error.empty()) {
    return;
  }
  const size_t count = operation.chunks.size();
  for (size_t i = 0; i < count && operation.error.empty(); ++i) {
    const size_t chunk = (static_cast<size_t>(ticket.slot) + i) % count;
    if (operation.chunks[chunk] == Operation::ChunkState::kOpen) {
      run_chunk_unlocked(lock, operation, chunk);
    }
  }
}

void ThreadsWorld::run_chunk_unlocked(
    Lock& lock, Operation& operation, size_t chunk) {
  operation.chunks[chunk] = Operation::ChunkState::kRunning;
  ++operation.running;
  lock.unlock();
  std::string error;
  std::vector<StreamPoint> ends;
  try {
    ends = move_data(operation, chunk);
  } catch (...) {
    error = "moving its data failed: " + message_of(std::current_exception());
  }
  lock.lock();
  --operation.running;
  ++operation.finished;
  ++progress_;
  operation.chunks[chunk] = Operation::ChunkState::kFinished;
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
    run_open_chunks(lock, ticket);
    if (operation.complete()) {
      mine = std::move(*operation.calls[static_cast<size_t>(ticket.slot)]);
      return join_chunks(mine, operation.ends);
    }
    if (operation.buffers_are_free()) {
      throw_failure(
          ticket.call(), *operation.group, ticket.rank(), operation.error);
    }
    block(lock, ticket, limit);
  }
}

bool ThreadsWorld::advance(const Ticket& ticket) {
  Lock lock(mutex_);
  run_open_chunks(lock, ticket);
  return ticket.operation->complete() || ticket.operation->buffers_are_free();
}

}  // namespace tessera::detail::inline comm_layer
