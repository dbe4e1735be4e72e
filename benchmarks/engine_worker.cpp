#include "engine_worker.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <iterator>

#include "cli/command.h"
#include "cli/run/child.h"
#include "cli/run/private_folder.h"
#include "cli/text/terminal.h"

namespace tessera::cli {
namespace {

constexpr int kWorkerSeconds = 300;
constexpr int kGraceSeconds = 20;  // for SIGTERM to work

/// Waits for a child, kWorkerSeconds at most; a signal to end goes to the child
/// first, and stays pending for this process. Returns the child's status.
int wait_for_worker(pid_t child) {
  using Clock = std::chrono::steady_clock;
  const sigset_t watched = watched_signals();
  auto limit = Clock::now() + std::chrono::seconds(kWorkerSeconds);
  bool asked = false;
  int taken = 0;
  int status = 0;
  while (waitpid(child, &status, WNOHANG) != child) {
    siginfo_t info{};
    const timespec pause{.tv_sec = 0, .tv_nsec = 100'000'000};
    const int number = sigtimedwait(&watched, &info, &pause);
    const bool told = number > 0 && number != SIGCHLD;
    if (!told && Clock::now() < limit) {
      continue;
    }
    // Those from the keyboard reach the child by themselves.
    if (!told || info.si_code <= 0) {
      kill(child, told ? number : asked ? SIGKILL : SIGTERM);
    }
    taken = told ? number : taken;
    asked = true;
    limit = Clock::now() + std::chrono::seconds(kGraceSeconds);
  }
  if (taken != 0) {
    raise(taken);
  }
  return status;
}

/// Runs a program to its end with its output in a file; returns its exit code.
/// The watched signals are blocked.
int run_to_end(
    const std::vector<std::string>& argv, const std::string& log,
    const sigset_t& mask) {
  const Child child = start_program(argv, mask, SIGTERM, [&] {
    const int input = open("/dev/null", O_RDONLY | O_CLOEXEC);
    const int output = open(log.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    dup2(input, STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
  });
  if (child.error != 0) {
    return report_exec_failure(argv[0], child.error);
  }
  return exit_code_of(wait_for_worker(child.pid));
}

/// Returns the last line that is not the launcher's own, if there is one.
std::string last_line(const std::string& file) {
  std::ifstream input(file);
  std::string last;
  for (std::string line; std::getline(input, line);) {
    const bool says_more = !line.starts_with("tessera run: rank");
    last = !line.empty() && (says_more || last.empty()) ? line : last;
  }
  return last;
}

std::vector<std::string> worker_command(
    const std::string& engine, int ranks, const std::vector<std::string>& argv,
    const std::string& file) {
  std::vector<std::string> command{
      program_beside("tessera"), "run", "--engine", engine, "-n",
      std::to_string(ranks),     "--",  own_path()};
  command.insert(command.end(), argv.begin(), argv.end());
  command.insert(command.end(), {"--worker", file});
  return command;
}

}  // namespace

std::optional<std::string> run_on_engine(
    const std::string& engine, int ranks, const std::vector<std::string>& argv,
    std::string& absence) {
  const BlockedSignals blocked;  // one that ends us does so without the folder
  const PrivateFolder folder;
  const std::string file = folder.file("times");
  const std::string log = folder.file("log");
  const int code = run_to_end(
      worker_command(engine, ranks, argv, file), log, blocked.before());
  if (code == kExitUsage) {
    absence = last_line(log);
    return std::nullopt;
  }
  std::ifstream input(file);
  if (code != 0 || !input) {
    throw std::runtime_error(
        engine + " on " + counted(ranks, "rank") + " ended with exit code " +
        std::to_string(code) + ": " + last_line(log));
  }
  return std::string(std::istreambuf_iterator<char>(input), {});
}

}  // namespace tessera::cli
