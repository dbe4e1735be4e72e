#include <tessera/comm/world.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <string_view>
#include <utility>

#include <c10/util/Exception.h>

#include "comm/engine/guarded_rank.h"
#include "comm/engine/launch.h"
#include "comm/engine/simulated/simulated_world.h"
#include "comm/engine/threads/threads.h"
#include "comm/process_ranks.h"
#include "comm/this_rank.h"
#include "comm/uncaught.h"

namespace tessera {
namespace {

constexpr int64_t kMaxThreadRanks = 4096;

void check_deadline(std::chrono::milliseconds deadline, const char* call) {
  TORCH_CHECK_VALUE(
      deadline.count() > 0, call, ": the deadline must be positive; got ",
      deadline.count(), " ms");
}

void check_engine(Engine engine, const char* call) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      engine != Engine::kNccl, call,
      ": this build has no engine 'nccl'; it has: threads, gloo, mpi, "
      "simulated");
}

// How many ranks as threads the program was started with; 0 when nothing says
// so.
int64_t thread_ranks_asked_for() {
  const std::string engine = detail::environment("TESSERA_ENGINE");
  const std::string text = detail::environment("TESSERA_NUM_RANKS");
  if (text.empty() || (!engine.empty() && engine != "threads")) {
    return 0;
  }
  int64_t count = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, count);
  TORCH_CHECK_VALUE(
      error == std::errc() && stop == end && count >= 1 &&
          count <= kMaxThreadRanks,
      "TESSERA_NUM_RANKS: the number of ranks must be 1 to ", kMaxThreadRanks,
      "; got '", text, "'");
  return count;
}

void check_no_rank(const char* call) {
  std::shared_ptr<detail::WorldImpl> outer = detail::current_thread_rank();
  if (outer == nullptr) {
    outer = detail::current_simulated_thread();
  }
  const auto& guarded = detail::guarded().rank;
  if (outer == nullptr && guarded != detail::lone_rank() &&
      guarded != nullptr && guarded->engine() == "threads") {
    outer = guarded;
  }
  TORCH_CHECK_VALUE(
      outer == nullptr, call, ", rank ", outer->rank(),
      ": a rank cannot start ranks of its own; use World::communicator(ranks) "
      "or split() for smaller groups");
}

// A program that names an engine must not run without it in silence.
void check_engine_of_lone_rank() {
  const std::string engine = detail::environment("TESSERA_ENGINE");
  const bool known = engine.empty() || engine == "threads" ||
                     engine == "gloo" || engine == "mpi" ||
                     engine == "simulated";
  TORCH_CHECK_VALUE(
      known,
      "init: TESSERA_ENGINE must be threads, gloo, mpi or simulated; got '",
      engine, "'");
  TORCH_CHECK_VALUE(
      engine != "gloo" && engine != "mpi", "init: TESSERA_ENGINE is ", engine,
      ", but nothing has started this process as one of several; start it with "
      "tessera run --engine ",
      engine, ", mpirun or torchrun, or unset TESSERA_ENGINE");
}

// For the library's own tests: run_ranks() on the processes of a job.
bool runs_on_processes() {
  return detail::environment("TESSERA_RUN_RANKS") == "processes";
}

}  // namespace

World::World(std::shared_ptr<detail::WorldImpl> impl)
    : impl_(std::move(impl)) {}

int64_t World::rank() const {
  return impl_->rank();
}
int64_t World::size() const {
  return impl_->size();
}
std::string World::engine() const {
  return impl_->engine();
}

Communicator World::communicator() const {
  std::vector<int64_t> ranks(static_cast<size_t>(size()));
  std::iota(ranks.begin(), ranks.end(), int64_t{0});
  return communicator(ranks);
}

Communicator World::communicator(const std::vector<int64_t>& ranks) const {
  const auto group = [&] { return detail::describe_group(ranks); };
  std::vector<int64_t> sorted = ranks;
  std::sort(sorted.begin(), sorted.end());
  TORCH_CHECK_VALUE(
      !ranks.empty(), "communicator, rank ", rank(),
      ": a group must have a rank; got none");
  TORCH_CHECK_INDEX(
      sorted.front() >= 0 && sorted.back() < size(), "communicator of ",
      group(), ", rank ", rank(), ": ranks must be 0 to ", size() - 1,
      ", the world's");
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  TORCH_CHECK_VALUE(
      twice == sorted.end(), "communicator of ", group(), ", rank ", rank(),
      ": ranks must be distinct; rank ", *twice, " occurs twice");
  TORCH_CHECK_VALUE(
      std::binary_search(sorted.begin(), sorted.end(), rank()),
      "communicator of ", group(), ", rank ", rank(),
      ": only ranks of a group may ask for it");
  auto made = impl_->communicator(ranks);
  made->random = impl_->random;
  made->of_world = impl_;
  return Communicator(std::move(made));
}

Communicator World::rebuild(const std::vector<int64_t>& ranks) const {
  static_cast<void>(communicator(ranks));  // checks them
  impl_->rebuild(ranks);
  impl_->logs()->flight->renew(ranks);
  return communicator(ranks);
}

const std::shared_ptr<detail::RandomCounters>& World::random_counters() const {
  return impl_->random;
}

std::chrono::milliseconds World::deadline() const {
  return impl_->deadline();
}

void World::set_deadline(std::chrono::milliseconds deadline) const {
  check_deadline(deadline, "set_deadline");
  impl_->set_deadline(deadline);
}

std::shared_ptr<detail::WorldImpl> detail::this_rank(const char* call) {
  if (const auto& rank = current_thread_rank()) {
    return rank;
  }
  if (const auto& rank = guarded().rank) {
    return rank;
  }
  if (auto rank = current_simulated_rank()) {
    return rank;
  }
  check_no_thread_ranks(call);
  const int64_t asked = thread_ranks_asked_for();
  TORCH_CHECK_VALUE(
      asked <= 1, "init: the program was started with ", asked,
      " ranks as threads, but this thread is none of them; put the content "
      "of main() into tessera::run([] { ... })");
  if (auto process = asked == 0 ? current_process_world() : nullptr) {
    return process;
  }
  check_engine_of_lone_rank();
  return lone_rank();
}

void detail::note_equal_shards() {
  this_rank()->took_shards_for_equal.store(true, std::memory_order_relaxed);
}

namespace {

void check_is_engine(Engine asked, const detail::WorldImpl& rank) {
  const char* name = asked == Engine::kThreads ? "threads"
                     : asked == Engine::kMpi   ? "mpi"
                     : asked == Engine::kC10d  ? "gloo"
                                               : nullptr;
  TORCH_CHECK_VALUE(
      name == nullptr || rank.engine() == name, "init, rank ", rank.rank(),
      " of ", rank.size(), ": the engine was to be ", name, ", but it is ",
      rank.engine(), "; the first init() decides, or TESSERA_ENGINE");
}

}  // namespace

World init(InitOptions options) {
  check_engine(options.engine, "init");
  check_deadline(options.deadline, "init");
  if (options.engine == Engine::kMpi || options.engine == Engine::kC10d) {
    TORCH_CHECK_VALUE(
        detail::this_process(options.engine, options.deadline) != nullptr,
        "init: this process was not started as one of several; use mpirun, "
        "torchrun or tessera run");
  }
  std::shared_ptr<detail::WorldImpl> rank = detail::this_rank();
  TORCH_CHECK_VALUE(
      options.engine != Engine::kSimulated || rank->engine() == "simulated",
      "init: this is no simulated rank, but rank ", rank->rank(), " of ",
      rank->size(), " with engine ", rank->engine(),
      "; use run_simulated({.rank = 17, .size = 65536}, body), or set "
      "TESSERA_ENGINE=simulated, TESSERA_RANK and TESSERA_WORLD_SIZE");
  check_is_engine(options.engine, *rank);
  if (options.deadline != InitOptions().deadline) {
    rank->set_deadline(options.deadline);
  }
  return World(std::move(rank));
}

void run_ranks(int n, const std::function<void()>& body, InitOptions options) {
  check_engine(options.engine, "run_ranks");
  check_deadline(options.deadline, "run_ranks");
  TORCH_CHECK_VALUE(
      n >= 1 && n <= kMaxThreadRanks,
      "run_ranks: the number of ranks must be "
      "1 to ",
      kMaxThreadRanks, "; got ", n);
  TORCH_CHECK_VALUE(body != nullptr, "run_ranks: the body is empty");
  check_no_rank("run_ranks");
  if (runs_on_processes() && detail::this_process() != nullptr) {
    TORCH_CHECK_VALUE(
        detail::current_process_world() == detail::this_process(),
        "run_ranks, rank ", detail::current_process_world()->rank(),
        ": a rank cannot start ranks of its own");
    return detail::run_process_ranks(n, body, options.deadline);
  }
  detail::run_thread_ranks(n, body, options.deadline);
}

void run_simulated(
    const SimulatedRank& which, const std::function<void()>& body) {
  TORCH_CHECK_VALUE(
      which.size >= 1 && which.rank >= 0 && which.rank < which.size,
      "run_simulated: the rank must be 0 to size - 1; got rank ", which.rank,
      " of size ", which.size);
  TORCH_CHECK_VALUE(body != nullptr, "run_simulated: the body is empty");
  check_no_rank("run_simulated");
  detail::run_simulated_rank(which, body);
}

namespace {

// Runs the body where the launcher says; `who` becomes this rank, where the
// message of an error would not name it.
void run_as_launched(const std::function<void()>& body, std::string& who) {
  const int64_t asked = thread_ranks_asked_for();
  if (asked > 0) {
    return run_ranks(static_cast<int>(asked), body);
  }
  TORCH_CHECK_VALUE(body != nullptr, "run: the body is empty");
  if (detail::current_simulated_rank() == nullptr) {
    if (const auto process = detail::this_process()) {
      who = "rank " + std::to_string(process->rank()) + " of " +
            std::to_string(process->size());
      return detail::run_as_process(*process, body);
    }
    check_engine_of_lone_rank();
  }
  body();
}

}  // namespace

void run(const std::function<void()>& body) {
  std::string who;
  try {
    run_as_launched(body, who);
  } catch (...) {
    detail::report_if_uncaught(std::current_exception(), who);
    throw;
  }
}

int64_t rank() {
  const auto& mine = detail::current_thread_rank();
  return mine != nullptr ? mine->rank() : detail::this_rank("rank")->rank();
}

int64_t world_size() {
  const auto& mine = detail::current_thread_rank();
  return mine != nullptr ? mine->size()
                         : detail::this_rank("world_size")->size();
}

}  // namespace tessera
