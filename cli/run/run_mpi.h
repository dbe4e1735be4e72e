// Ranks that mpirun starts.
//
// Note [Ranks under mpirun]
// mpirun starts, per rank, this command with --join FOLDER, which starts the
// program and waits for it. What the program prints goes through named pipes in
// the job's folder to the launcher, and so do its start and end. So
// prefixes, whole lines, grace times and exit codes are the same as for other
// engines: mpirun on its own mixes lines, and ends all others at once when one
// fails, before they can say why. The program's argv lies in the folder, since
// mpirun reads some itself (a lone colon begins another program). The process
// in between stays until the launcher has seen the end of all, so that mpirun
// does not notice.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "private_folder.h"
#include "rank_output.h"
#include "run.h"
#include "run_job.h"

namespace tessera::cli {

class MpirunProcess {
 public:
  /// Starts mpirun with ranks that run `argv`; adds their streams.
  MpirunProcess(
      const PrivateFolder& folder, const RunOptions& options, const Argv& argv,
      const sigset_t& mask, RankOutput& output);
  ~MpirunProcess();
  MpirunProcess(const MpirunProcess&) = delete;
  MpirunProcess& operator=(const MpirunProcess&) = delete;

  pid_t pid() const { return pid_; }
  /// Returns what to poll for starts and ends of ranks.
  int control() const { return control_; }
  /// Reads it; returns errno where the program could not be started, else 0.
  int read_events(RankJob& job);
  /// Returns what to poll for mpirun's own messages.
  int messages() const { return messages_; }
  void read_messages();

  /// Lets the processes in between end, and waits for mpirun; returns its exit
  /// code.
  int finish();
  /// Called when waitpid() has seen its end.
  void ended(int status);
  bool has_ended() const { return ended_; }
  /// Returns what mpirun said.
  const std::string& text() const { return text_; }

 private:
  pid_t pid_ = -1;
  int control_ = -1;
  int hold_ = -1;
  int messages_ = -1;
  std::string text_;
  bool ended_ = false;
  int status_ = 0;
};

}  // namespace tessera::cli
