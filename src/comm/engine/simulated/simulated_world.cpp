#include "comm/engine/simulated/simulated_world.h"

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include "comm/call/rank_errors.h"
#include "comm/call/shared_memory_collectives.h"
#include "comm/engine/guarded_rank.h"
#include "comm/engine/inherited_modes.h"
#include "comm/engine/launch.h"
#include "comm/engine/rank_modes.h"
#include "comm/engine/simulated/equal_ranks.h"

namespace tessera::detail::inline comm_layer {
namespace {

std::shared_ptr<SimulatedWorld>& thread_rank() {
  thread_local std::shared_ptr<SimulatedWorld> rank;
  return rank;
}

// A call, complete unless it is one half of a message to itself.
class SimulatedWork : public WorkImpl {
 public:
  SimulatedWork(std::string site, std::shared_ptr<OwnMessage> message)
      : site_(std::move(site)), message_(std::move(message)) {}

  void wait() override {
    if (!done()) {
      message_->withdrawn = true;
      TORCH_CHECK_VALUE(
          false, site_,
          ": this rank waits for a message to itself whose other half it has "
          "not started; use send_async or recv_async, then the other");
    }
  }
  bool done() override { return message_ == nullptr || message_->complete; }
  void abandon() override {
    if (!done()) {
      message_->withdrawn = true;
    }
  }

 private:
  std::string site_;
  std::shared_ptr<OwnMessage> message_;
};

class SimulatedCommunicator : public CommunicatorImpl {
 public:
  SimulatedCommunicator(
      std::shared_ptr<SimulatedWorld> world, const std::vector<int64_t>& ranks)
      : CommunicatorImpl(world->logs()),
        world_(std::move(world)),
        group_(world_->group(ranks)),
        group_rank_(
            std::find(ranks.begin(), ranks.end(), world_->rank()) -
            ranks.begin()) {}

  int64_t rank() const override { return group_rank_; }
  const std::vector<int64_t>& ranks() const override { return group_.ranks; }
  std::string engine() const override { return "simulated"; }

  std::unique_ptr<WorkImpl> submit(CollectiveCall call) override {
    const CallSite site{call.kind, group_.ranks, group_rank_};
    if (call.kind == CallKind::kSplit) {
      check_split(call, site);
    }
    if (is_point_to_point(call.kind) && call.peer == group_rank_) {
      return send_to_itself(std::move(call), site);
    }
    complete_alone(call, group_rank_, site.size());
    return std::make_unique<SimulatedWork>("", nullptr);
  }

  std::shared_ptr<CommunicatorImpl> subgroup(
      const std::vector<int64_t>& ranks) override {
    return world_->communicator(ranks);
  }

 private:
  static void check_split(const CollectiveCall& call, const CallSite& site) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        site.size() == 1 || *call.input.const_data_ptr<int64_t>() < 0, site,
        ": a simulated rank does not know the colors of the others; use "
        "World::communicator(ranks) or DeviceMesh::communicator(dim)");
  }

  std::unique_ptr<WorkImpl> send_to_itself(
      CollectiveCall call, const CallSite& site) {
    const std::lock_guard<std::mutex> lock(group_.mutex);
    auto& waiting = group_.messages[call.tag];
    std::erase_if(waiting, [](const auto& m) { return m->withdrawn.load(); });
    if (waiting.empty() || waiting.front()->call.kind == call.kind) {
      waiting.push_back(std::make_shared<OwnMessage>(std::move(call)));
      return std::make_unique<SimulatedWork>(c10::str(site), waiting.back());
    }
    const auto first = waiting.front();
    waiting.pop_front();
    complete_pair(call, *first, site);
    return std::make_unique<SimulatedWork>("", nullptr);
  }

  static void complete_pair(
      const CollectiveCall& call, OwnMessage& first, const CallSite& site) {
    const std::string what = mismatch(
        fingerprint_of(call, site.group_rank),
        fingerprint_of(first.call, site.group_rank));
    TORCH_CHECK_VALUE(
        what.empty(), site, ": this rank's own calls do not agree on ", what,
        ": ", describe(first.call), " and ", describe(call));
    const bool sends = call.kind == CallKind::kSend;
    const at::Tensor& from = sends ? call.input : first.call.input;
    const at::Tensor& to = sends ? first.call.output : call.output;
    copy_run(to, 0, from, 0, to.numel());
    first.complete = true;
  }

  std::shared_ptr<SimulatedWorld> world_;
  SimulatedGroup& group_;  // lives as long as the world
  int64_t group_rank_;
};

// The rank of a process that was started as one, without the others.
std::shared_ptr<SimulatedWorld> process_rank() {
  static const std::shared_ptr<SimulatedWorld> rank = [] {
    if (environment("TESSERA_ENGINE") != "simulated") {
      return std::shared_ptr<SimulatedWorld>();
    }
    const auto launch = find_launch();
    TORCH_CHECK_VALUE(
        launch.has_value(),
        "init: TESSERA_ENGINE=simulated wants to be told which rank of how "
        "many; set TESSERA_RANK and TESSERA_WORLD_SIZE");
    return std::make_shared<SimulatedWorld>(
        SimulatedRank{.rank = launch->rank, .size = launch->size});
  }();
  return rank;
}

}  // namespace

SimulatedGroup& SimulatedWorld::group(const std::vector<int64_t>& ranks) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::unique_ptr<SimulatedGroup>& group = groups_[ranks];
  if (group == nullptr) {
    group = std::make_unique<SimulatedGroup>();
    group->ranks = ranks;
  }
  return *group;
}

std::shared_ptr<CommunicatorImpl> SimulatedWorld::communicator(
    const std::vector<int64_t>& ranks) {
  return std::make_shared<SimulatedCommunicator>(shared_from_this(), ranks);
}

const std::shared_ptr<SimulatedWorld>& current_simulated_thread() {
  return thread_rank();
}

std::shared_ptr<SimulatedWorld> current_simulated_rank() {
  return thread_rank() != nullptr ? thread_rank() : process_rank();
}

void run_simulated_rank(
    const SimulatedRank& which, const std::function<void()>& body) {
  const ThreadRanksRun running;
  const at::ThreadLocalState modes;
  const int intra_op_threads = at::get_num_threads();
  std::exception_ptr failure;
  std::thread([&] {
    try {
      const at::ThreadLocalStateGuard guard(modes);
      clear_modes();
      const RankModes rank_modes;
      set_intra_op_threads(intra_op_threads);
      thread_rank() = std::make_shared<SimulatedWorld>(which);
      body();
    } catch (...) {
      failure = std::current_exception();
    }
  }).join();
  if (failure) {
    rethrow_with_rank(
        failure, c10::str("simulated rank ", which.rank, " of ", which.size));
  }
}

}  // namespace tessera::detail::inline comm_layer
