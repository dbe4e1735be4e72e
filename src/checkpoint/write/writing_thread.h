// The thread of one rank that writes its snapshot, and commits on the first
// rank.
//
// Note [Who touches what in an asynchronous save]
// The thread has its own objects (WritingThread::Work: writer, part, io::Save,
// the memory of the snapshot), which nobody else uses between start() and
// join(). It calls io and nothing else: no tensor, no communicator, no world.
// Shared are only
//   written_           an atomic counter, for progress()
//   state_             an atomic, by which the thread begins
//   is_written_        an atomic, set when writing_error_ is final
//   is_over_           an atomic, set last, read by done()
//   stops_waiting_     an atomic, asked while the thread waits for other ranks
//   errors, leftovers  written by the thread, read after it has set is_written_
//                      or was joined
// The snapshot's memory belongs to the rank (async_saves.h) and is used again
// when the save before has been joined. A forked child has these objects too,
// but no thread, and the files are its parent's: there it waits for nothing and
// removes nothing.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <checkpoint/write/snapshot.h>
#include <io/save.h>
#include <tessera/checkpoint/checkpoint.h>

namespace tessera::detail::inline checkpoint_layer {

class WritingThread {
 public:
  struct Work {
    std::unique_ptr<io::RankWriter> writer;
    std::vector<Snapshot::Bytes> chunks;  // of the writer
    std::unique_ptr<io::Save> saving;     // of the first rank
    std::unique_ptr<io::RankPart> part;   // of the others
    /// Called by the first rank when the checkpoint is visible.
    std::function<void()> after_commit;
    std::function<void(const checkpoint::Progress&)> report;
  };

  /// Makes the thread, which waits for start().
  explicit WritingThread(Work work);
  /// Waits for the thread. Without start() nothing is written.
  ~WritingThread();
  WritingThread(const WritingThread&) = delete;
  WritingThread& operator=(const WritingThread&) = delete;

  void start();
  checkpoint::Progress progress() const;
  /// Tells whether the save is over on all ranks, as far as this one sees.
  bool done() const;
  /// Waits until this rank's bytes are on the disk, or the writing has failed.
  void wait_written() const;
  /// Waits for the thread: on the first rank for the others, too. Any thread
  /// may call it, more than once.
  void join();
  /// Lets the first rank wait for the others no longer, whose connection is
  /// broken: where one still writes, the save fails.
  void stop_waiting() { stops_waiting_ = true; }

  /// What went wrong, if anything, in the writing of this rank. After
  /// wait_written().
  const std::exception_ptr& writing_error() const { return writing_error_; }
  /// The same of the commit, on the first rank. After join().
  const std::exception_ptr& committing_error() const {
    return committing_error_;
  }
  /// What of the old checkpoint could not be removed. After join().
  const std::vector<std::string>& leftovers() const { return leftovers_; }

 private:
  enum class State { kWaits, kWrites, kEnds };

  bool is_forked_copy() const;
  void run();
  std::string write();
  void commit(std::string records);

  const pid_t process_;
  const int64_t total_;
  Work work_;
  std::atomic<int64_t> written_ = 0;
  std::atomic<State> state_ = State::kWaits;
  std::atomic<bool> is_written_ = false;
  std::atomic<bool> is_over_ = false;
  std::atomic<bool> stops_waiting_ = false;
  std::exception_ptr writing_error_;
  std::exception_ptr committing_error_;
  std::vector<std::string> leftovers_;
  std::mutex joining_;  // of thread_
  std::thread thread_;
};

}  // namespace tessera::detail::inline checkpoint_layer
