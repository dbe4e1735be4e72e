#include "run_job.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <set>
#include <string>

#include "child.h"

namespace tessera::cli {
namespace {

using namespace std::chrono_literals;

// Ranks that end at nearly the same time are named together: which of them
// began it is in what they print.
constexpr auto kTogether = 300ms;
// Time for survivors to raise their own errors, and for SIGTERM to work.
constexpr auto kGrace = 5s;
// The same where survivors cannot hear of a killed rank: there is nothing to
// wait for.
constexpr auto kShortGrace = 1s;

}  // namespace

RankJob::RankJob(int ranks, bool reports_dead_ranks)
    : reports_dead_ranks_(reports_dead_ranks),
      ranks_(static_cast<size_t>(ranks)) {}

void RankJob::started(int rank, pid_t pid) {
  ranks_[static_cast<size_t>(rank)].pid = pid;
}

void RankJob::ended(int rank, int status) {
  ranks_[static_cast<size_t>(rank)].ended = true;
  if (status == 0 || stage_ > Stage::kFailed) {
    return;
  }
  failures_.push_back({rank, status});
  if (stage_ == Stage::kRunning) {
    stage_ = Stage::kFailed;
    next_stage_ = Clock::now() + (WIFSIGNALED(status) ? 0ms : kTogether);
  }
}

bool RankJob::process_ended(pid_t pid, int status) {
  const auto rank = std::find_if(
      ranks_.begin(), ranks_.end(),
      [&](const Rank& r) { return r.pid == pid && !r.ended; });
  if (rank == ranks_.end()) {
    return false;
  }
  ended(static_cast<int>(rank - ranks_.begin()), status);
  return true;
}

int RankJob::alive() const {
  return static_cast<int>(std::count_if(
      ranks_.begin(), ranks_.end(), [](const Rank& r) { return !r.ended; }));
}

bool RankJob::all_started() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& r) {
    return r.ended || r.pid > 0;
  });
}

void RankJob::send(int signal) const {
  for (const Rank& rank : ranks_) {
    if (!rank.ended && rank.pid > 0) {
      kill(rank.pid, signal);
    }
  }
}

std::string RankJob::poll(Time now) {
  const bool waiting = stage_ != Stage::kRunning && stage_ != Stage::kKilled;
  if (!waiting || (alive() > 0 && now < next_stage_)) {
    return "";
  }
  const bool killed = WIFSIGNALED(failures_[0].status);
  const auto grace = killed && !reports_dead_ranks_
                         ? RankJob::Clock::duration(kShortGrace)
                         : RankJob::Clock::duration(kGrace);
  next_stage_ = now + grace;
  if (stage_ == Stage::kFailed) {
    return final_report();
  }
  if (stage_ == Stage::kSaid) {
    send(SIGTERM);
    stage_ = Stage::kTerminated;
  } else {
    send(SIGKILL);
    stage_ = Stage::kKilled;
  }
  return "";
}

std::string RankJob::final_report() {
  if (stage_ != Stage::kFailed) {
    return "";
  }
  stage_ = Stage::kSaid;
  return "tessera run: " + failures_text() +
         (alive() > 0 ? "; ending the others\n" : "\n");
}

int RankJob::milliseconds_to_poll(Time now) const {
  if (stage_ == Stage::kRunning || stage_ == Stage::kKilled) {
    return -1;
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(
      std::max(next_stage_ - now, Clock::duration::zero()));
  return static_cast<int>(left.count());
}

int RankJob::exit_code() const {
  return failures_.empty() ? 0 : exit_code_of(failures_[0].status);
}

// "ranks 0 2 exited with status 3; rank 1 was ended by signal 9 (Killed)".
std::string RankJob::failures_text() const {
  std::string text;
  for (size_t i = 0; i < failures_.size();) {
    const size_t first = i;
    const int status = failures_[first].status;
    std::set<int> together;
    for (; i < failures_.size() && failures_[i].status == status; ++i) {
      together.insert(failures_[i].rank);
    }
    std::string ranks;
    for (const int rank : together) {
      ranks += " " + std::to_string(rank);
    }
    const bool several = together.size() > 1;
    text += (first == 0 ? "rank" : "; rank") + std::string(several ? "s" : "") +
            ranks + " " + ending_text(status, several);
  }
  return text;
}

}  // namespace tessera::cli
