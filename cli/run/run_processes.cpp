// Ranks as processes: starts them, passes their output on, ends them.
#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <thread>

#include "child.h"
#include "cli/command.h"
#include "private_folder.h"
#include "rank_output.h"
#include "run.h"
#include "run_job.h"
#include "run_mpi.h"

namespace tessera::cli {
namespace {

constexpr int kMostProcesses = 256;

void check_processes(const RunOptions& options) {
  if (options.ranks > kMostProcesses) {
    throw UsageError(
        "-n must be at most " + std::to_string(kMostProcesses) +
        " with engine '" + options.engine + "'; got " +
        std::to_string(options.ranks));
  }
  if (options.engine == "mpi" && find_mpirun().path.empty()) {
    throw UsageError(
        "engine 'mpi' needs mpirun, which is not in PATH; install an MPI "
        "(Debian: openmpi-bin and libopenmpi-dev) and build again");
  }
}

/// Ranks share the cores of the host.
void share_cores(int ranks) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  setenv(
      "OMP_NUM_THREADS", std::to_string(std::max(1, cores / ranks)).c_str(),
      /*overwrite=*/0);
}

/// Starts the rank's process with its output going to new streams.
Child start_rank(
    const RunOptions& options, int rank, const Argv& argv, const sigset_t& mask,
    RankOutput& output) {
  int out[2];
  int err[2];
  if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) {
    throw std::runtime_error(
        std::string("cannot make a pipe: ") + std::strerror(errno));
  }
  for (const auto& [from, to] :
       {std::pair{out[0], STDOUT_FILENO}, {err[0], STDERR_FILENO}}) {
    fcntl(from, F_SETFL, O_NONBLOCK);
    output.add(from, rank, to);
  }
  const Child child = start_program(argv, mask, SIGTERM, [&] {
    dup2(out[1], STDOUT_FILENO);
    dup2(err[1], STDERR_FILENO);
    if (rank != 0) {
      dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
    }
    describe_rank(options, rank);
  });
  close(out[1]);
  close(err[1]);
  return child;
}

/// Waits for everything that can happen to a job, until all ranks have ended.
class JobLoop {
 public:
  JobLoop(RankJob& job, RankOutput& output) : job_(job), output_(output) {
    const sigset_t watched = watched_signals();
    signals_ = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals_ < 0) {
      throw std::runtime_error(
          std::string("signalfd: ") + std::strerror(errno));
    }
  }
  ~JobLoop() { close(signals_); }
  JobLoop(const JobLoop&) = delete;
  JobLoop& operator=(const JobLoop&) = delete;

  /// Returns errno where the program could not be started, else 0.
  int run(MpirunProcess* mpirun) {
    mpirun_ = mpirun;
    while (job_.alive() > 0 && !(mpirun_ && mpirun_->has_ended())) {
      output_.forward(wait());
      read_mpirun();
      take_signals();
      output_.say(job_.poll(RankJob::Clock::now()));
    }
    read_mpirun();  // what it said last
    finish_output();
    say(job_.final_report());
    return start_error_;
  }

  /// Prints text of the launcher after all that ranks have printed.
  void say(const std::string& text) {
    output_.say(text);
    finish_output();
  }

 private:
  /// Returns the files that have something to read, or room.
  std::vector<int> wait() const {
    std::vector<pollfd> files = {
        {.fd = signals_, .events = POLLIN, .revents = 0}};
    const auto add = [&](int fd) {
      if (fd >= 0) {
        files.push_back({.fd = fd, .events = POLLIN, .revents = 0});
      }
    };
    output_.poll_for(files);
    if (mpirun_ != nullptr) {
      add(mpirun_->control());
      add(mpirun_->messages());
    }
    poll(
        files.data(), files.size(),
        job_.milliseconds_to_poll(RankJob::Clock::now()));
    std::vector<int> ready;
    for (const pollfd& file : files) {
      if (file.revents != 0) {
        ready.push_back(file.fd);
      }
    }
    return ready;
  }

  // Waits for the readers, but not for long once this process was told to end.
  void finish_output() {
    constexpr auto kLastWait = std::chrono::seconds(2);
    constexpr int kPollMilliseconds = 100;
    const auto begin = RankJob::Clock::now();
    while (!output_.finish()) {
      take_signals();
      if (told_to_end_ &&
          RankJob::Clock::now() > std::max(begin, told_at_) + kLastWait) {
        return;
      }
      std::vector<pollfd> files = {
          {.fd = signals_, .events = POLLIN, .revents = 0}};
      output_.poll_for_room(files);
      poll(files.data(), files.size(), kPollMilliseconds);
    }
  }

  void read_mpirun() {
    if (mpirun_ != nullptr) {
      mpirun_->read_messages();
      const int error = mpirun_->read_events(job_);
      start_error_ = error != 0 ? error : start_error_;
    }
  }

  void take_signals() {
    signalfd_siginfo info{};
    while (read(signals_, &info, sizeof info) == sizeof info) {
      const int number = static_cast<int>(info.ssi_signo);
      if (number == SIGCHLD) {
        reap();
        continue;
      }
      if (number != SIGUSR1 && number != SIGUSR2) {
        told_to_end_ = true;
        told_at_ = RankJob::Clock::now();
      }
      // Those from the keyboard reach processes of this group by themselves.
      const bool sent_by_process = info.ssi_code <= 0;
      if (mpirun_ == nullptr ? sent_by_process : job_.all_started()) {
        job_.send(number);
      } else if (mpirun_ != nullptr && !mpirun_->has_ended()) {
        kill(mpirun_->pid(), number);
      }
    }
  }

  void reap() {
    int status = 0;
    for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
      if (mpirun_ != nullptr && pid == mpirun_->pid()) {
        mpirun_->ended(status);
      } else {
        job_.process_ended(pid, status);
      }
    }
  }

  RankJob& job_;
  RankOutput& output_;
  bool told_to_end_ = false;
  RankJob::Time told_at_ = {};
  int signals_ = -1;
  MpirunProcess* mpirun_ = nullptr;
  int start_error_ = 0;
};

void wait_for_children() {
  while (waitpid(-1, nullptr, 0) > 0 || errno == EINTR) {
  }
}

int run_gloo(
    const RunOptions& options, const Argv& argv, const sigset_t& mask) {
  const PrivateFolder folder;
  setenv("TESSERA_STORE", folder.file("store").c_str(), 1);
  RankJob job(options.ranks, /*reports_dead_ranks=*/true);
  RankOutput output(!options.no_prefix);
  for (int rank = 0; rank < options.ranks; ++rank) {
    const Child child = start_rank(options, rank, argv, mask, output);
    if (child.error != 0) {
      job.send(SIGKILL);
      wait_for_children();  // they may use the folder
      return report_exec_failure(argv[0], child.error);
    }
    job.started(rank, child.pid);
  }
  JobLoop(job, output).run(nullptr);
  return job.exit_code();
}

int run_mpi(const RunOptions& options, const Argv& argv, const sigset_t& mask) {
  const PrivateFolder folder;
  RankJob job(options.ranks, /*reports_dead_ranks=*/false);
  RankOutput output(!options.no_prefix);
  MpirunProcess mpirun(folder, options, argv, mask, output);
  JobLoop loop(job, output);
  const int error = loop.run(&mpirun);
  const bool ended_early = job.alive() > 0;
  if (ended_early) {
    job.send(SIGKILL);
  }
  const int mpirun_code = mpirun.finish();
  if (error != 0) {
    return report_exec_failure(argv[0], error);
  }
  if (job.failed() && !ended_early) {
    return job.exit_code();  // mpirun only repeats it
  }
  loop.say(mpirun.text());
  if (ended_early) {
    loop.say(
        "tessera run: mpirun ended with status " + std::to_string(mpirun_code) +
        " before the ranks\n");
  }
  return job.failed()  ? job.exit_code()
         : ended_early ? std::max(mpirun_code, kExitFailure)
                       : 0;
}

}  // namespace

void describe_rank(const RunOptions& options, int rank) {
  const std::string ranks = std::to_string(options.ranks);
  for (const char* name : {"TESSERA_RANK", "TESSERA_LOCAL_RANK"}) {
    setenv(name, std::to_string(rank).c_str(), 1);
  }
  for (const char* name : {"TESSERA_WORLD_SIZE", "TESSERA_LOCAL_SIZE"}) {
    setenv(name, ranks.c_str(), 1);
  }
  setenv("TESSERA_ENGINE", options.engine.c_str(), 1);
  unsetenv("TESSERA_NUM_RANKS");
}

int run_processes(const RunOptions& options, const Argv& argv) {
  check_processes(options);
  share_cores(options.ranks);
  const BlockedSignals blocked;
  return options.engine == "mpi" ? run_mpi(options, argv, blocked.before())
                                 : run_gloo(options, argv, blocked.before());
}

}  // namespace tessera::cli
