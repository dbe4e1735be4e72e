// tessera run: starts a program whose main() calls tessera::run(body) on N
// ranks, and ends as the program ended.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "command.h"

namespace tessera::cli {
namespace {

constexpr int kExitNotExecutable = 126;  // as shells do
constexpr int kExitNotFound = 127;
constexpr int kExitSignalled = 128;  // + the number of the signal
constexpr std::array kForwarded = {SIGINT,  SIGTERM, SIGHUP,
                                   SIGQUIT, SIGUSR1, SIGUSR2};

struct RunOptions {
  int ranks = 0;
  std::string engine = "threads";
};

void check_engine(const std::string& engine) {
  if (engine != "threads") {
    throw UsageError(
        "engine '" + engine + "' is not available; this build has: threads");
  }
}

int exec_failure(const std::string& program, int error) {
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

sigset_t watched_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  for (const int number : kForwarded) {
    sigaddset(&set, number);
  }
  return set;
}

/// Becomes the program; writes errno into the pipe when that fails.
[[noreturn]] void become(
    const std::vector<std::string>& words, const sigset_t& mask,
    int error_pipe) {
  std::vector<char*> argv;
  for (const std::string& word : words) {
    argv.push_back(const_cast<char*>(word.c_str()));
  }
  argv.push_back(nullptr);
  prctl(PR_SET_PDEATHSIG, SIGTERM);  // no orphan when this process is killed
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  execvp(argv[0], argv.data());
  const int error = errno;
  (void)!write(error_pipe, &error, sizeof error);
  _exit(kExitNotFound);
}

/// Waits for the child and passes on signals sent to this process alone; those
/// from the keyboard reach the child by themselves.
int wait_forwarding(pid_t child, const sigset_t& watched) {
  while (true) {
    siginfo_t info{};
    const int number = sigwaitinfo(&watched, &info);
    int status = 0;
    if (waitpid(child, &status, WNOHANG) == child) {
      return status;
    }
    const bool sent_by_process = info.si_code <= 0;
    if (number > 0 && number != SIGCHLD && sent_by_process) {
      kill(child, number);
    }
  }
}

int exit_code_of(const std::string& program, int status) {
  if (WIFEXITED(status)) {
    return WEXITSTATUS(status);
  }
  const int number = WTERMSIG(status);
  std::fprintf(
      stderr, "tessera run: %s was ended by signal %d (%s)\n", program.c_str(),
      number, strsignal(number));
  return kExitSignalled + number;
}

int spawn_and_wait(const std::vector<std::string>& words) {
  int error_pipe[2];
  if (pipe2(error_pipe, O_CLOEXEC) != 0) {
    throw std::runtime_error(std::strerror(errno));
  }
  signal(SIGCHLD, SIG_DFL);  // an inherited "ignore" would lose the status
  const sigset_t watched = watched_signals();
  sigset_t before;
  sigprocmask(SIG_BLOCK, &watched, &before);
  const pid_t child = fork();
  if (child < 0) {
    throw std::runtime_error(
        std::string("cannot start a process: ") + std::strerror(errno));
  }
  if (child == 0) {
    become(words, before, error_pipe[1]);
  }
  close(error_pipe[1]);
  int error = 0;
  const bool failed = read(error_pipe[0], &error, sizeof error) == sizeof error;
  close(error_pipe[0]);
  const int status = wait_forwarding(child, watched);
  return failed ? exec_failure(words[0], error)
                : exit_code_of(words[0], status);
}

int run_program(
    const RunOptions& options, const std::vector<std::string>& unexpected,
    const std::vector<std::string>& words) {
  if (!unexpected.empty()) {
    throw UsageError(
        "'" + unexpected[0] +
        "' was not expected here; the program and its arguments follow after "
        "--: tessera run -n 4 -- PROGRAM [ARGS]");
  }
  if (words.empty()) {
    throw UsageError(
        "no program was given; example: tessera run -n 4 -- ./train --steps "
        "10");
  }
  if (options.ranks < 1) {
    throw UsageError(
        "-n must be at least 1; got " + std::to_string(options.ranks));
  }
  check_engine(options.engine);
  setenv("TESSERA_NUM_RANKS", std::to_string(options.ranks).c_str(), 1);
  setenv("TESSERA_ENGINE", options.engine.c_str(), 1);
  return spawn_and_wait(words);
}

}  // namespace

void add_run(
    CLI::App& app, const std::vector<std::string>& program, int& exit_code) {
  CLI::App* run = app.add_subcommand(
      "run", "Run a program on N ranks: run -n N -- PROGRAM [ARGS]");
  auto options = std::make_shared<RunOptions>();
  run->add_option("-n,--ranks", options->ranks, "number of ranks")->required();
  run->add_option(
         "--engine", options->engine, "how ranks are realised: threads")
      ->capture_default_str();
  run->allow_extras();
  run->footer(
      "PROGRAM follows after --. Its main() calls tessera::run(body),\n"
      "which runs body on N threads. The exit code is the program's; 128 + n\n"
      "when signal n ended it, 127 when it was not found, 126 when it cannot\n"
      "be executed.");
  run->callback([options, run, &program, &exit_code] {
    exit_code = run_program(*options, run->remaining(), program);
  });
}

}  // namespace tessera::cli
