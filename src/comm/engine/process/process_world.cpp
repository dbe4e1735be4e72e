#include "comm/engine/process/process_world.h"

#include <algorithm>
#include <numeric>
#include <thread>
#include <utility>

#include <base/text.h>
#include <c10/util/Exception.h>

#include "comm/call/rank_errors.h"
#include "comm/engine/launch.h"
#include "comm/engine/process/process_call.h"
#include "comm/engine/process/self_messages.h"

namespace tessera::detail::inline comm_layer {
namespace {

// How often a waiting rank looks before it gives its core away, and before it
// sleeps between looks.
constexpr int kSpins = 200;
constexpr int kYields = 20000;
constexpr auto kNap = std::chrono::microseconds(100);
constexpr auto kExplanation = std::chrono::milliseconds(300);

// Ranks that share a core wait for each other's turn on it.
int spins() {
  static const int count = [] {
    const auto launch = find_launch();
    const int64_t cores = std::thread::hardware_concurrency();
    return launch && launch->local_size > cores ? 0 : kSpins;
  }();
  return count;
}

// How a rank waits between two looks.
class Pauses {
 public:
  void next() {
    ++looks_;
    if (looks_ > spins() + kYields) {
      std::this_thread::sleep_for(kNap);
    } else if (looks_ > spins()) {
      std::this_thread::yield();
    }
  }

 private:
  int looks_ = 0;
};

class ProcessWork : public WorkImpl {
 public:
  ProcessWork(
      std::shared_ptr<ProcessWorld> world, std::shared_ptr<ProcessCall> call)
      : world_(std::move(world)), call_(std::move(call)) {}

  void wait() override {
    if (const auto call = std::exchange(call_, nullptr)) {
      world_->wait(*call);
    }
  }
  bool done() override { return call_ == nullptr || world_->advance(*call_); }
  void abandon() override {
    if (const auto call = std::exchange(call_, nullptr)) {
      world_->abandon(call);
    }
  }

 private:
  std::shared_ptr<ProcessWorld> world_;
  std::shared_ptr<ProcessCall> call_;
};

class ProcessCommunicator : public CommunicatorImpl {
 public:
  ProcessCommunicator(
      std::shared_ptr<ProcessWorld> world, std::vector<int64_t> ranks,
      int64_t group_rank, std::shared_ptr<CallLogs> logs)
      : CommunicatorImpl(std::move(logs)),
        world_(std::move(world)),
        ranks_(std::move(ranks)),
        group_rank_(group_rank) {}

  int64_t rank() const override { return group_rank_; }
  const std::vector<int64_t>& ranks() const override { return ranks_; }
  std::string engine() const override { return world_->engine(); }
  std::unique_ptr<WorkImpl> submit(CollectiveCall call) override {
    return std::make_unique<ProcessWork>(
        world_, world_->submit(ranks_, std::move(call)));
  }
  std::shared_ptr<CommunicatorImpl> subgroup(
      const std::vector<int64_t>& ranks) override {
    return world_->communicator(ranks);
  }

 private:
  std::shared_ptr<ProcessWorld> world_;
  std::vector<int64_t> ranks_;
  int64_t group_rank_;
};

// Failed calls keep their tensors until no transfer touches them any more,
// which may be after the end of their world.
class EndingCalls {
 public:
  void keep(std::shared_ptr<ProcessCall> call) {
    const std::lock_guard<std::mutex> lock(mutex_);
    calls_.push_back(std::move(call));
  }
  void drop_ended() {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::erase_if(
        calls_, [](const auto& call) { return call->buffers_are_free(); });
  }

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<ProcessCall>> calls_;
};

EndingCalls& ending_calls() {
  static auto* calls = new EndingCalls();  // outlives everything
  return *calls;
}

std::string text_of(const std::exception& error) {
  const auto* known = dynamic_cast<const c10::Error*>(&error);
  return known != nullptr ? known->what_without_backtrace() : error.what();
}

}  // namespace

ProcessWorld::ProcessWorld(
    std::unique_ptr<Transport> transport, std::chrono::milliseconds deadline)
    : transport_(std::move(transport)), deadline_(deadline) {}

ProcessWorld::~ProcessWorld() {
  leave("");
  const Lock lock(mutex_);  // other threads may be moving calls on
  for (const auto& [ranks, group] : groups_) {
    mark_broken(*group, "the world has ended");
  }
  for (const auto& call : active_) {
    ending_calls().keep(call);
  }
}

std::chrono::milliseconds ProcessWorld::deadline() const {
  const Lock lock(mutex_);
  return deadline_;
}

void ProcessWorld::set_deadline(std::chrono::milliseconds deadline) {
  const Lock lock(mutex_);
  deadline_ = deadline;
}

std::shared_ptr<CommunicatorImpl> ProcessWorld::communicator(
    const std::vector<int64_t>& ranks) {
  const Lock lock(mutex_);
  auto& group = groups_[ranks];
  if (group == nullptr) {
    const auto group_rank = std::find(ranks.begin(), ranks.end(), rank());
    group = std::make_shared<ProcessGroupState>(
        ranks, group_rank - ranks.begin(), 0);
  }
  return std::make_shared<ProcessCommunicator>(
      shared_from_this(), ranks, group->group_rank, logs());
}

void ProcessWorld::rebuild(const std::vector<int64_t>& ranks) {
  const Lock lock(mutex_);
  auto& group = groups_.at(ranks);
  mark_broken(*group, "the group was rebuilt meanwhile");
  group = std::make_shared<ProcessGroupState>(
      ranks, group->group_rank, group->generation + 1);
}

// After a failure only groups that were rebuilt without the failed go on.
std::string ProcessWorld::failure_of(const ProcessGroupState& group) const {
  if (group.generation == 0) {
    return first_failure_;
  }
  for (const auto& [rank, text] : failures_) {
    if (std::find(group.ranks.begin(), group.ranks.end(), rank) !=
        group.ranks.end()) {
      return text;
    }
  }
  return "";
}

void ProcessWorld::check_may_call(
    const ProcessGroupState& group, const CollectiveCall& call) const {
  std::string reason = failure_of(group);
  if (left_) {
    reason = "this rank's body has ended; make no calls after run()";
  } else if (reason.empty() && !group.broken.empty()) {
    reason = "the group is broken by an earlier failure: " + group.broken;
  }
  TORCH_CHECK_WITH(
      DistBackendError, reason.empty(), describe(call), " on ",
      describe_group(group.ranks), ", rank ", group.rank(), ": ", reason);
}

void ProcessWorld::check_one_caller(
    ProcessGroupState& group, const CollectiveCall& call) {
  const bool alone = std::all_of(
      group.waiting.begin(), group.waiting.end(), [](std::thread::id other) {
        return other == std::this_thread::get_id();
      });
  if (is_point_to_point(call.kind) || alone) {
    return;
  }
  const std::string text = two_callers_text(call, rank());
  break_group(group, text);
  TORCH_CHECK_WITH(
      DistBackendError, false, describe(call), " on ",
      describe_group(group.ranks), ", rank ", rank(), ": ", text);
}

std::shared_ptr<ProcessCall> ProcessWorld::submit(
    const std::vector<int64_t>& ranks, CollectiveCall call) {
  const Lock lock(mutex_);
  const std::shared_ptr<ProcessGroupState> group = groups_.at(ranks);
  hear();
  flush_withdrawn();
  check_may_call(*group, call);
  check_one_caller(*group, call);
  auto made = std::make_shared<ProcessCall>(group, std::move(call));
  active_.push_back(made);
  advance_or_fail(*made);
  move_all();
  return made;
}

void ProcessWorld::advance_or_fail(ProcessCall& call) {
  ProcessGroupState& group = call.group();
  try {
    if (group.channel == nullptr) {
      group.channel = with_self_messages(
          transport_->join(group.ranks, group.key()), group.group_rank);
    }
    call.advance();
  } catch (const Mismatch& error) {
    break_group(group, error.what());
  } catch (const std::exception& error) {
    explain_error(group);
    break_group(group, text_of(error));
  }
}

void ProcessWorld::move_all() {
  for (const auto& call : std::vector(active_)) {
    if (!call->failed()) {
      advance_or_fail(*call);
    }
  }
  std::erase_if(active_, [&](const auto& call) {
    if (call->failed()) {
      ending_calls().keep(call);
    }
    return call->complete() || call->failed();
  });
  pending_.set_count(static_cast<int64_t>(active_.size()));
}

void ProcessWorld::try_move_all() {
  const Lock lock(mutex_, std::try_to_lock);
  if (lock.owns_lock()) {
    move_all();
  }
}

// A connection that breaks is often the end of another rank, which may have
// said why: waiting a moment for its message gives a better error.
void ProcessWorld::explain_error(ProcessGroupState& group) {
  const auto limit = ProcessCall::Clock::now() + kExplanation;
  while (group.broken.empty() && ProcessCall::Clock::now() < limit) {
    hear();
    std::this_thread::sleep_for(kNap);
  }
}

void ProcessWorld::hear() {
  std::vector<PeerEvent> all;
  try {
    all = transport_->poll_events(/*world=*/0);
  } catch (const std::exception& error) {
    for (auto& [ranks, group] : groups_) {
      mark_broken(
          *group, "the ranks cannot hear each other: " + text_of(error));
    }
  }
  for (const PeerEvent& event : all) {
    if (event.group == 0) {
      ended_[event.rank] = event.calls;
      if (!event.text.empty()) {
        hear_failure(event.rank, event.text);
      }
      continue;
    }
    for (auto& [ranks, group] : groups_) {
      if (group->number() == event.group) {
        mark_broken(*group, event.text);
      }
    }
  }
  miss_ended_ranks();
  ending_calls().drop_ended();
}

void ProcessWorld::hear_failure(int64_t rank, const std::string& text) {
  const std::string reason =
      "rank " + std::to_string(rank) + " failed: " + text;
  failures_.emplace(rank, reason);
  if (first_failure_.empty()) {
    first_failure_ = reason;
  }
  for (auto& [ranks, group] : groups_) {
    if (!failure_of(*group).empty()) {
      mark_broken(*group, reason);
    }
  }
}

// A rank that has returned will not make the calls that others wait in.
void ProcessWorld::miss_ended_ranks() {
  for (const auto& call : std::vector(active_)) {
    for (const int64_t rank : call->partners()) {
      const auto ended = ended_.find(rank);
      if (ended != ended_.end() && !call->is_among(ended->second) &&
          !call->failed()) {
        break_group(
            call->group(),
            "rank " + std::to_string(rank) +
                " returned from its body without making " + call->label() +
                "; every rank of a group must make the same calls in the same "
                "order");
      }
    }
  }
}

namespace {

// Lists a thread that waits for a collective of its own.
class ListedThread {
 public:
  ListedThread(std::mutex& mutex, const ProcessCall& call) : mutex_(mutex) {
    if (!is_point_to_point(call.call().kind) &&
        call.caller() == std::this_thread::get_id()) {
      const std::lock_guard<std::mutex> lock(mutex_);
      list_ = &call.group().waiting;
      list_->push_back(call.caller());
    }
  }
  ~ListedThread() {
    if (list_ != nullptr) {
      const std::lock_guard<std::mutex> lock(mutex_);
      list_->erase(
          std::find(list_->begin(), list_->end(), std::this_thread::get_id()));
    }
  }
  ListedThread(const ListedThread&) = delete;
  ListedThread& operator=(const ListedThread&) = delete;

 private:
  std::mutex& mutex_;
  std::vector<std::thread::id>* list_ = nullptr;
};

}  // namespace

void ProcessWorld::wait(ProcessCall& call) {
  const ListedThread waiting(mutex_, call);
  const auto began = ProcessCall::Clock::now();
  Pauses pauses;
  for (int looks = 0;; ++looks) {
    {
      const Lock lock(mutex_);
      move_all();
      if (!call.complete() && !call.failed() && looks % 64 == 0) {
        hear();
        if (ProcessCall::Clock::now() - began > deadline_) {
          report_deadline(call);
        }
      }
      if (call.failed()) {
        call.raise();
      }
      if (call.complete()) {
        return;
      }
    }
    pauses.next();
  }
}

bool ProcessWorld::advance(ProcessCall& call) {
  const Lock lock(mutex_);
  move_all();
  hear();
  return call.complete() || call.failed();
}

void ProcessWorld::abandon(const std::shared_ptr<ProcessCall>& call) {
  const Lock lock(mutex_);
  move_all();
  withdrawn_.push_back(call);
}

void ProcessWorld::flush_withdrawn() {
  for (const auto& call : std::exchange(withdrawn_, {})) {
    if (!call->complete() && !call->failed()) {
      break_group(
          call->group(),
          call->label() + " was given up by rank " + std::to_string(rank()) +
              " while an exception passed through it; wait() for a Work before "
              "code that may throw");
    }
  }
}

void ProcessWorld::report_deadline(ProcessCall& call) {
  const std::vector<int64_t> missing = call.close_and_name_missing();
  break_group(
      call.group(),
      call.label() + " did not complete within the deadline of " +
          std::to_string(deadline_.count()) + " ms; waited for " +
          (missing.empty() ? "data"
                           : (missing.size() == 1 ? "rank " : "ranks ") +
                                 base::join(missing, " ")) +
          "; raise InitOptions.deadline if the work takes longer");
}

void ProcessWorld::break_group(
    ProcessGroupState& group, const std::string& reason) {
  if (group.broken.empty()) {
    transport_->notify(
        group.ranks, {.rank = rank(), .group = group.number(), .text = reason});
    mark_broken(group, reason);
  }
}

void ProcessWorld::mark_broken(
    ProcessGroupState& group, const std::string& reason) {
  if (!group.broken.empty()) {
    return;
  }
  group.broken = reason;
  for (const auto& call : active_) {
    if (&call->group() == &group) {
      call->fail(reason);
    }
  }
  if (group.channel != nullptr) {
    group.channel->close();
  }
}

bool ProcessWorld::heard_failure() const {
  const Lock lock(mutex_);
  return !first_failure_.empty();
}

void ProcessWorld::leave(const std::string& error) {
  const Lock lock(mutex_);
  if (!std::exchange(left_, true)) {
    PeerEvent event{.rank = rank(), .text = error};
    if (error.empty()) {
      flush_withdrawn();
      for (const auto& [ranks, group] : groups_) {
        group->count_calls(event.calls);
      }
    }
    std::vector<int64_t> others(static_cast<size_t>(size()));
    std::iota(others.begin(), others.end(), int64_t{0});
    transport_->notify(others, event);
  }
}

}  // namespace tessera::detail::inline comm_layer
