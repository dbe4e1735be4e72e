// The asynchronous saves of this process: of each rank the one under way, and
// the memory of its snapshots.
//
// Note [Saves that nobody waits for]
// A handle may be dropped, so the save is kept here too. One is under way at a
// time: the next save or load of the rank waits for it first, and throws what
// went wrong in it, unless Handle::wait() has. That is collective, on the
// threads of the program, and the same on all ranks, whatever their handles do;
// and so a rank needs memory for one snapshot. When the program ends, the
// threads are waited for, without the other ranks; errors are printed. The same
// where a world of threads has ended, at the next save or load of another.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <string>

#include <checkpoint/write/writing_thread.h>
#include <tessera/comm/world.h>

namespace tessera::detail::inline checkpoint_layer {

/// A save of one rank, from its start until its ranks have told each other how
/// it has ended.
class AsyncSave {
 public:
  /// `call` is what errors begin with.
  AsyncSave(
      std::string call, std::string path, const World& world,
      WritingThread::Work work);

  const std::string& path() const { return path_; }
  WritingThread& thread() { return thread_; }
  /// Tells whether the save is over on all ranks, as far as this one sees.
  bool done() const;
  /// Waits until the save is over, and throws on all ranks what went wrong on
  /// one. Collective the first time; later calls repeat the outcome.
  void wait();
  /// Tells whether wait() has returned or thrown an outcome.
  bool is_told() const { return is_told_; }
  /// Waits for this rank's thread alone, and returns what went wrong on this
  /// rank; "" also where wait() has told it.
  std::string problem_untold();

 private:
  void check_rank() const;
  void agree();
  template <class Method>
  void wait_for_thread(Method method);
  void throw_own(const std::exception_ptr& error) const;
  void throw_own_errors() const;

  const std::string call_;
  const std::string path_;
  const std::weak_ptr<RandomCounters> rank_;  // ends with its world
  std::mutex mutex_;                          // of outcome_
  std::exception_ptr outcome_;
  std::atomic<bool> is_told_ = false;  // set when outcome_ is final
  WritingThread thread_;
};

/// Returns the memory of this rank's snapshots, which is kept. Used by calls of
/// the rank, while no save is under way.
Snapshot& snapshot_of(const World& world);

/// Starts a save of this rank, when all ranks are ready for it.
void start_async_save(
    const World& world, const std::shared_ptr<AsyncSave>& save);

/// What every save and load does first: waits for the save that is under way,
/// and throws what went wrong in it. Collective. `call` is the one that waits.
void finish_async_save(const std::string& call, const World& world);

}  // namespace tessera::detail::inline checkpoint_layer
