// Programs that this command starts: becoming one, how it ended, and which
// signals are passed on to it.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace tessera::cli {

/// Returns SIGCHLD and the signals that are passed on to programs.
sigset_t watched_signals();

/// Blocks the watched signals and SIGPIPE while it lives; a child gets the mask
/// of before.
class BlockedSignals {
 public:
  BlockedSignals();
  ~BlockedSignals();
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;
  const sigset_t& before() const { return before_; }

 private:
  sigset_t before_;
};

/// Returns the path of this program.
std::string own_path();
/// Returns the path of a program in the folder of this one.
std::string program_beside(const std::string& name);

/// Becomes the program at a path, with its own name as argv[0]; returns errno
/// where that fails.
int exec_program(const std::string& path, const std::vector<std::string>& argv);

/// A program that was started, or why it was not.
struct Child {
  pid_t pid = -1;
  int error = 0;  // of exec; the process is gone then
};

/// Starts a program. `prepare` runs in the new process; the process gets
/// `death_signal` when this one ends.
Child start_program(
    const std::vector<std::string>& argv, const sigset_t& mask,
    int death_signal, const std::function<void()>& prepare = [] {});

/// Says why a program was not started; returns 127 or 126, as shells do.
int report_exec_failure(const std::string& program, int error);

/// Returns the exit code for a status of waitpid: 128 + n for signal n.
int exit_code_of(int status);
/// Prints "exited with status 7", "was ended by signal 9 (Killed)".
std::string ending_text(int status, bool plural = false);

}  // namespace tessera::cli
