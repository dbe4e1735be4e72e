#include "child.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <stdexcept>

namespace tessera::cli {
namespace {

constexpr int kExitNotExecutable = 126;  // as shells do
constexpr int kExitNotFound = 127;
constexpr int kExitSignalled = 128;  // + the number of the signal
constexpr std::array kForwarded = {SIGINT,  SIGTERM, SIGHUP,
                                   SIGQUIT, SIGUSR1, SIGUSR2};

/// Returns arguments as exec() takes them, which does not change them.
std::vector<char*> pointers_to(const std::vector<std::string>& argv) {
  std::vector<char*> pointers;
  for (const std::string& argument : argv) {
    pointers.push_back(const_cast<char*>(argument.c_str()));
  }
  pointers.push_back(nullptr);
  return pointers;
}

/// Becomes the program; writes errno into the pipe when that fails.
[[noreturn]] void become(
    const std::vector<std::string>& argv, const sigset_t& mask,
    int error_pipe) {
  const std::vector<char*> pointers = pointers_to(argv);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  execvp(pointers[0], pointers.data());
  const int error = errno;
  (void)!write(error_pipe, &error, sizeof error);
  _exit(kExitNotFound);
}

}  // namespace

sigset_t watched_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  for (const int number : kForwarded) {
    sigaddset(&set, number);
  }
  return set;
}

BlockedSignals::BlockedSignals() {
  signal(SIGCHLD, SIG_DFL);  // an inherited "ignore" would lose the status
  sigset_t blocked = watched_signals();
  sigaddset(&blocked, SIGPIPE);
  sigprocmask(SIG_BLOCK, &blocked, &before_);
}

BlockedSignals::~BlockedSignals() {
  // One that came is dealt with: writes failed.
  sigset_t broken_pipe;
  sigemptyset(&broken_pipe);
  sigaddset(&broken_pipe, SIGPIPE);
  const timespec at_once{};
  sigtimedwait(&broken_pipe, nullptr, &at_once);
  sigprocmask(SIG_SETMASK, &before_, nullptr);
}

std::string own_path() {
  std::array<char, PATH_MAX> path{};
  if (readlink("/proc/self/exe", path.data(), path.size() - 1) < 0) {
    throw std::runtime_error(
        std::string("cannot find the path of this program: ") +
        std::strerror(errno));
  }
  return path.data();
}

std::string program_beside(const std::string& name) {
  const std::string self = own_path();
  return self.substr(0, self.rfind('/') + 1) + name;
}

int exec_program(
    const std::string& path, const std::vector<std::string>& argv) {
  execv(path.c_str(), pointers_to(argv).data());
  return errno;
}

Child start_program(
    const std::vector<std::string>& argv, const sigset_t& mask,
    int death_signal, const std::function<void()>& prepare) {
  int error_pipe[2];
  if (pipe2(error_pipe, O_CLOEXEC) != 0) {
    throw std::runtime_error(
        std::string("cannot make a pipe: ") + std::strerror(errno));
  }
  const pid_t parent = getpid();
  Child child{.pid = fork()};
  if (child.pid < 0) {
    const int error = errno;
    close(error_pipe[0]);
    close(error_pipe[1]);
    throw std::runtime_error(
        std::string("cannot start a process: ") + std::strerror(error));
  }
  if (child.pid == 0) {
    prctl(PR_SET_PDEATHSIG, death_signal);
    if (getppid() != parent) {
      _exit(kExitNotFound);  // it ended before it could be watched
    }
    prepare();
    become(argv, mask, error_pipe[1]);
  }
  close(error_pipe[1]);
  const bool failed = read(error_pipe[0], &child.error, sizeof child.error) ==
                      sizeof child.error;
  close(error_pipe[0]);
  if (failed) {
    waitpid(child.pid, nullptr, 0);
    child.pid = -1;
  }
  return child;
}

int report_exec_failure(const std::string& program, int error) {
  const bool missing = error == ENOENT || error == ENOTDIR;
  std::string hint;
  if (missing && program.find('/') == std::string::npos) {
    hint = " in PATH (for a file in this folder write ./" + program + ")";
  }
  std::fprintf(
      stderr, "tessera run: cannot execute %s: %s%s\n", program.c_str(),
      std::strerror(error), hint.c_str());
  return missing ? kExitNotFound : kExitNotExecutable;
}

int exit_code_of(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status)
                           : kExitSignalled + WTERMSIG(status);
}

std::string ending_text(int status, bool plural) {
  if (WIFEXITED(status)) {
    return "exited with status " + std::to_string(WEXITSTATUS(status));
  }
  const int number = WTERMSIG(status);
  return std::string(plural ? "were" : "was") + " ended by signal " +
         std::to_string(number) + " (" + strsignal(number) + ")";
}

}  // namespace tessera::cli
