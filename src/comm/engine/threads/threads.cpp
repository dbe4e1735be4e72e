// Ranks as threads: their world, their communicators, their start and end.
#include "comm/engine/threads/threads.h"

#include <algorithm>
#include <thread>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>
#include <ATen/ops/ones.h>
#include <c10/util/Exception.h>

#include "comm/engine/guarded_rank.h"
#include "comm/engine/inherited_modes.h"
#include "comm/engine/rank_modes.h"

namespace tessera::detail::inline comm_layer {
namespace {

std::shared_ptr<ThreadsRank>& thread_rank() {
  thread_local std::shared_ptr<ThreadsRank> rank;
  return rank;
}

class ThreadsWork : public WorkImpl {
 public:
  ThreadsWork(std::shared_ptr<ThreadsWorld> world, Ticket ticket)
      : world_(std::move(world)), ticket_(std::move(ticket)) {}

  void wait() override {
    if (ticket_.operation != nullptr) {
      world_->wait(std::exchange(ticket_, {}));
    }
  }
  bool done() override {
    return ticket_.operation == nullptr || world_->advance(ticket_);
  }
  void abandon() override {
    if (ticket_.operation != nullptr) {
      world_->withdraw(std::exchange(ticket_, {}));
    }
  }

 private:
  std::shared_ptr<ThreadsWorld> world_;
  Ticket ticket_;
};

class ThreadsCommunicator : public CommunicatorImpl {
 public:
  ThreadsCommunicator(
      std::shared_ptr<ThreadsWorld> world, const std::vector<int64_t>& ranks,
      int64_t rank, std::shared_ptr<CallLogs> logs)
      : CommunicatorImpl(std::move(logs)),
        world_(std::move(world)),
        slot_(world_->group(ranks, rank)),
        group_rank_(
            std::find(ranks.begin(), ranks.end(), rank) - ranks.begin()) {}

  int64_t rank() const override { return group_rank_; }
  const std::vector<int64_t>& ranks() const override { return group().ranks; }
  std::string engine() const override { return "threads"; }
  bool shares_memory() const override { return true; }
  std::unique_ptr<WorkImpl> submit(CollectiveCall call) override {
    return std::make_unique<ThreadsWork>(
        world_, world_->submit(group(), group_rank_, std::move(call)));
  }
  std::shared_ptr<CommunicatorImpl> subgroup(
      const std::vector<int64_t>& ranks) override {
    return std::make_shared<ThreadsCommunicator>(
        world_, ranks, group().ranks[static_cast<size_t>(group_rank_)], logs());
  }

 private:
  ThreadsGroup& group() const { return *slot_.load(); }

  std::shared_ptr<ThreadsWorld> world_;
  ThreadsWorld::GroupSlot& slot_;  // lives as long as the world
  int64_t group_rank_;
};

// LibTorch makes some of its state when first used, without a lock that
// every reader takes. This happens here, once, on a thread with default modes
// that has ended when ranks start.
void prepare_libtorch() {
  static const bool prepared = [] {
    std::thread([] {
      at::detail::getDefaultCPUGenerator();
      const at::Tensor x = at::ones({2}).set_requires_grad(true);
      x.mul(x).sum().backward();
    }).join();
    return true;
  }();
  static_cast<void>(prepared);
}

struct RankStart {
  std::shared_ptr<ThreadsWorld> world;
  const std::function<void()>& body;
  at::ThreadLocalState modes;
  int intra_op_threads;
};

void rank_main(const RankStart& start, int64_t rank) {
  try {
    const at::ThreadLocalStateGuard modes(start.modes);
    clear_modes();
    const RankModes rank_modes;
    set_intra_op_threads(start.intra_op_threads);
    thread_rank() = std::make_shared<ThreadsRank>(start.world, rank);
    start.body();
    start.world->leave(rank);
  } catch (...) {
    start.world->fail(rank, std::current_exception());
    if (thread_rank() != nullptr) {
      thread_rank()->logs()->flight->rank_failed(std::current_exception());
    }
  }
}

}  // namespace

ThreadsWorld::ThreadsWorld(int64_t size, std::chrono::milliseconds deadline)
    : deadline_(deadline), ranks_(static_cast<size_t>(size)) {}

std::chrono::milliseconds ThreadsWorld::deadline() {
  const Lock lock(mutex_);
  return deadline_;
}

void ThreadsWorld::set_deadline(std::chrono::milliseconds deadline) {
  const Lock lock(mutex_);
  deadline_ = deadline;
}

ThreadsWorld::GroupSlot& ThreadsWorld::group(
    const std::vector<int64_t>& ranks, int64_t rank) {
  const Lock lock(mutex_);
  GroupSlot& slot = ranks_[static_cast<size_t>(rank)].slots[ranks];
  if (slot == nullptr) {
    slot = find_group(ranks, 0);
  }
  return slot;
}

ThreadsGroup* ThreadsWorld::find_group(
    const std::vector<int64_t>& ranks, uint64_t generation) {
  std::unique_ptr<ThreadsGroup>& group = groups_[{ranks, generation}];
  if (group == nullptr) {
    group = std::make_unique<ThreadsGroup>();
    group->ranks = ranks;
    group->generation = generation;
    group->next.resize(ranks.size());
    group->waiting.resize(ranks.size());
  }
  return group.get();
}

void ThreadsWorld::rebuild(const std::vector<int64_t>& ranks, int64_t rank) {
  const Lock lock(mutex_);
  GroupSlot& slot = ranks_[static_cast<size_t>(rank)].slots.at(ranks);
  slot = find_group(ranks, slot.load()->generation + 1);
}

bool ThreadsWorld::is_own_thread(int64_t rank) const {
  const ThreadsRank* mine = thread_rank().get();
  return mine != nullptr && mine->world().get() == this && mine->rank() == rank;
}

std::shared_ptr<CommunicatorImpl> ThreadsRank::communicator(
    const std::vector<int64_t>& ranks) {
  return std::make_shared<ThreadsCommunicator>(world_, ranks, rank_, logs());
}

const std::shared_ptr<ThreadsRank>& current_thread_rank() {
  return thread_rank();
}

const std::shared_ptr<ThreadsRank>& lone_rank() {
  static const auto rank = std::make_shared<ThreadsRank>(
      std::make_shared<ThreadsWorld>(1, std::chrono::minutes(5)), 0);
  return rank;
}

void run_thread_ranks(
    int64_t n, const std::function<void()>& body,
    std::chrono::milliseconds deadline) {
  prepare_libtorch();
  const ThreadRanksRun running;
  const int all_threads = at::get_num_threads();
  const RankStart start{
      std::make_shared<ThreadsWorld>(n, deadline), body, at::ThreadLocalState(),
      std::max(1, all_threads / static_cast<int>(n))};
  std::vector<std::thread> threads;
  try {
    for (int64_t rank = 0; rank < n; ++rank) {
      threads.emplace_back(rank_main, std::cref(start), rank);
    }
  } catch (...) {
    start.world->fail(
        static_cast<int64_t>(threads.size()), std::current_exception());
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  if (start.intra_op_threads != all_threads) {
    // The last value set is also the default of threads yet to come.
    at::set_num_threads(all_threads);
  }
  start.world->rethrow_failure();
}

}  // namespace tessera::detail::inline comm_layer
