// tessera run: starts a program whose main() calls tessera::run(body) on N
// ranks, and ends as the program ended.
#include <sys/wait.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "child.h"
#include "cli/command.h"
#include "run.h"

namespace tessera::cli {
namespace {

/// Waits for the child and passes on signals sent to this process alone; those
/// from the keyboard reach the child by themselves.
int wait_forwarding(pid_t child) {
  const sigset_t watched = watched_signals();
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

/// The program makes the ranks itself; its streams are its own.
int run_threads(const RunOptions& options, const Argv& argv) {
  setenv("TESSERA_NUM_RANKS", std::to_string(options.ranks).c_str(), 1);
  setenv("TESSERA_ENGINE", "threads", 1);
  const BlockedSignals blocked;
  const Child child = start_program(argv, blocked.before(), SIGTERM);
  if (child.error != 0) {
    return report_exec_failure(argv[0], child.error);
  }
  const int status = wait_forwarding(child.pid);
  if (WIFSIGNALED(status)) {
    std::fprintf(
        stderr, "tessera run: %s %s\n", argv[0].c_str(),
        ending_text(status).c_str());
  }
  return exit_code_of(status);
}

void check_engine(const std::string& engine) {
  if (engine != "threads" && engine != "mpi" && engine != "gloo") {
    throw UsageError(
        "there is no engine '" + engine + "'; there are: threads, mpi, gloo");
  }
}

int run_program(
    const RunOptions& options, const Argv& unexpected, const Argv& argv) {
  if (!unexpected.empty()) {
    throw UsageError(
        "'" + unexpected[0] +
        "' was not expected here; the program and its arguments follow after "
        "--: tessera run -n 4 -- PROGRAM [ARGS]");
  }
  if (!options.join.empty()) {
    return join_job(options);
  }
  if (argv.empty()) {
    throw UsageError(
        "no program was given; example: tessera run -n 4 -- ./train --steps "
        "10");
  }
  if (options.ranks < 1) {
    throw UsageError(
        "-n must be at least 1; got " + std::to_string(options.ranks));
  }
  check_engine(options.engine);
  return options.engine == "threads" ? run_threads(options, argv)
                                     : run_processes(options, argv);
}

void set_up_run(CLI::App& run, Invocation& invocation) {
  auto options = std::make_shared<RunOptions>();
  run.add_option("-n,--ranks", options->ranks, "number of ranks")->required();
  run.add_option(
         "--engine", options->engine,
         "how ranks are realised: threads, mpi, gloo")
      ->capture_default_str();
  run.add_flag(
      "--no-prefix", options->no_prefix,
      "print lines of ranks that are processes without their rank");
  run.add_option("--join", options->join)->group("");
  run.allow_extras();
  run.footer(
      "PROGRAM follows after --. Its main() calls tessera::run(body), which\n"
      "runs body on N threads, or on this rank of N processes (mpi, gloo);\n"
      "lines that processes print come with their rank: [2] text. When a rank\n"
      "fails, the others are ended. The exit code is that of the program, or\n"
      "of the rank that failed first; 128 + n when signal n ended it, 127 "
      "when\n"
      "the program was not found, 126 when it cannot be executed.");
  run.callback([options, &run, &invocation] {
    invocation.exit_code =
        run_program(*options, run.remaining(), invocation.program);
  });
}

const Command kRun{"run", &set_up_run};

}  // namespace
}  // namespace tessera::cli
