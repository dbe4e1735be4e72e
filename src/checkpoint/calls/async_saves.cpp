#include <checkpoint/calls/async_saves.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <utility>
#include <vector>

#include <c10/util/Exception.h>
#include <checkpoint/errors.h>
#include <comm/wait_hooks.h>

namespace tessera::detail::inline checkpoint_layer {

namespace {

struct RankSaves {
  std::weak_ptr<RandomCounters> rank;    // of one world; ends with it
  Snapshot snapshot;                     // used by calls of the rank alone
  std::shared_ptr<AsyncSave> under_way;  // under the mutex of the list
};

class SaveList {
 public:
  // Never destroyed: threads of ranks may outlive static objects.
  static SaveList& instance() {
    static auto* list = new SaveList;
    static const io::FileSystem& used_at_end = io::system_files();
    static const AtEnd at_end;  // before that is destroyed
    static_cast<void>(used_at_end);
    return *list;
  }

  std::shared_ptr<RankSaves> of(const World& world) {
    const std::lock_guard lock(mutex_);
    for (const std::shared_ptr<RankSaves>& one : ranks_) {
      if (one->rank.lock() == world.random_counters()) {
        return one;
      }
    }
    ranks_.push_back(std::make_shared<RankSaves>());
    ranks_.back()->rank = world.random_counters();
    return ranks_.back();
  }

  std::shared_ptr<AsyncSave> exchange(
      RankSaves& rank, std::shared_ptr<AsyncSave> save) {
    const std::lock_guard lock(mutex_);
    return std::exchange(rank.under_way, std::move(save));
  }

  // Waits for the saves of worlds that have ended. Every rank does, since each
  // may look for what is being written.
  void finish_ended_worlds() {
    for (const std::shared_ptr<RankSaves>& one : ended_worlds()) {
      const std::string problem =
          one->under_way ? one->under_way->problem_untold() : "";
      if (remove(one) && !problem.empty()) {
        TORCH_WARN(problem, "; the world of its ranks has ended");
      }
    }
  }

 private:
  struct AtEnd {
    ~AtEnd() { instance().finish_all(); }
  };

  using Ranks = std::vector<std::shared_ptr<RankSaves>>;

  Ranks ended_worlds() {
    const std::lock_guard lock(mutex_);
    Ranks ended;
    std::copy_if(
        ranks_.begin(), ranks_.end(), std::back_inserter(ended),
        [](const auto& one) { return one->rank.expired(); });
    return ended;
  }

  // True for one thread only.
  bool remove(const std::shared_ptr<RankSaves>& one) {
    const std::lock_guard lock(mutex_);
    return std::erase(ranks_, one) > 0;
  }

  void finish_all() {
    const std::lock_guard lock(mutex_);
    for (const std::shared_ptr<RankSaves>& one : ranks_) {
      const std::string problem =
          one->under_way ? one->under_way->problem_untold() : "";
      if (!problem.empty()) {
        std::fprintf(stderr, "%s\n", problem.c_str());
      }
    }
  }

  std::mutex mutex_;
  Ranks ranks_;
};

}  // namespace

AsyncSave::AsyncSave(
    std::string call, std::string path, const World& world,
    WritingThread::Work work)
    : call_(std::move(call)),
      path_(std::move(path)),
      rank_(world.random_counters()),
      thread_(std::move(work)) {}

bool AsyncSave::done() const {
  return is_told_ || thread_.done();
}

void AsyncSave::wait() {
  const std::lock_guard lock(mutex_);
  if (!is_told_) {
    check_rank();
    try {
      agree();
    } catch (const c10::DistBackendError&) {
      // Of the ranks' connection: how the save has ended is not known.
      thread_.stop_waiting();
      throw;
    } catch (...) {
      outcome_ = std::current_exception();
    }
    wait_for_thread(&WritingThread::join);  // nothing of it is under way now
    is_told_ = true;
    for (const std::string& leftover : thread_.leftovers()) {
      TORCH_WARN(call_, ": ", leftover);
    }
  }
  if (outcome_ != nullptr) {
    std::rethrow_exception(outcome_);
  }
}

template <class Method>
void AsyncSave::wait_for_thread(Method method) {
  const HostWait host;
  (thread_.*method)();
}

void AsyncSave::check_rank() const {
  const auto rank = rank_.lock();
  TORCH_CHECK_VALUE(
      rank == nullptr || init().random_counters() == rank, call_,
      ": its handle waits on another rank than the one that saved; each rank "
      "waits with its own");
}

// First about the writing, of which every rank knows by itself: so the wait for
// other ranks is the communicator's, with its deadline. Then the first rank's
// thread has all that it needs to commit.
void AsyncSave::agree() {
  if (rank_.expired()) {  // its world has ended
    wait_for_thread(&WritingThread::join);
    return throw_own_errors();
  }
  const World world = init();
  wait_for_thread(&WritingThread::wait_written);
  Agreement writing = begin_checkpoint_agreement(call_, world.communicator());
  writing.check([&] { throw_own(thread_.writing_error()); });
  writing.reach();
  wait_for_thread(&WritingThread::join);
  Agreement committing =
      begin_checkpoint_agreement(call_, world.communicator());
  committing.check([&] { throw_own(thread_.committing_error()); });
  committing.reach();
}

void AsyncSave::throw_own(const std::exception_ptr& error) const {
  with_torch_errors(call_, [&] {
    if (error != nullptr) {
      std::rethrow_exception(error);
    }
  });
}

void AsyncSave::throw_own_errors() const {
  throw_own(thread_.writing_error());
  throw_own(thread_.committing_error());
}

std::string AsyncSave::problem_untold() {
  thread_.join();
  const std::lock_guard lock(mutex_);
  if (is_told_) {
    return "";
  }
  try {
    throw_own_errors();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return call_ + ": " + error.what();
  }
  return "";
}

Snapshot& snapshot_of(const World& world) {
  return SaveList::instance().of(world)->snapshot;
}

void start_async_save(
    const World& world, const std::shared_ptr<AsyncSave>& save) {
  SaveList& list = SaveList::instance();
  list.exchange(*list.of(world), save);
  save->thread().start();
}

void finish_async_save(const std::string& call, const World& world) {
  SaveList& list = SaveList::instance();
  list.finish_ended_worlds();
  const std::shared_ptr<AsyncSave> save =
      list.exchange(*list.of(world), nullptr);
  if (!save || save->is_told()) {
    return;
  }
  try {
    save->wait();
  } catch (c10::Error& error) {
    error.add_context(
        "met by " + call + ", which has waited for that save and not begun");
    throw;
  }
}

}  // namespace tessera::detail::inline checkpoint_layer
