// The ranks of a job that are processes: which are alive, which failed first,
// and when the others are ended.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

namespace tessera::cli {

class RankJob {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;

  /// `reports_dead_ranks`: whether the engine tells survivors of a killed rank.
  RankJob(int ranks, bool reports_dead_ranks);

  void started(int rank, pid_t pid);
  void ended(int rank, int status);
  /// The same for a process; false when it is none of the ranks.
  bool process_ended(pid_t pid, int status);

  int size() const { return static_cast<int>(ranks_.size()); }
  /// Returns the number of ranks that have not ended.
  int alive() const;
  bool all_started() const;
  /// Sends a signal to all ranks that are alive.
  void send(int signal) const;

  /// Ends the others when a rank has failed and their time is up. Returns what
  /// to say of it, mostly nothing.
  std::string poll(Time now);
  /// Returns what poll() has not said yet, when nothing more will happen.
  std::string final_report();
  /// Returns how long until poll() has something to do, in milliseconds; -1
  /// when it has not.
  int milliseconds_to_poll(Time now) const;

  bool failed() const { return !failures_.empty(); }
  /// Returns the code of the rank that failed first; 0 when none did.
  int exit_code() const;

 private:
  struct Rank {
    pid_t pid = 0;
    bool ended = false;
  };
  struct Failure {
    int rank;
    int status;
  };
  enum class Stage { kRunning, kFailed, kSaid, kTerminated, kKilled };

  std::string failures_text() const;

  bool reports_dead_ranks_;
  std::vector<Rank> ranks_;
  std::vector<Failure> failures_;  // in the order of their ends
  Stage stage_ = Stage::kRunning;
  Time next_stage_ = {};
};

}  // namespace tessera::cli
