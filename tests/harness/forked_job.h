// Jobs of 4 processes over Gloo that may be killed, stopped, and watched.
//
// Ranks are forked from the test, which has LibTorch loaded but must have
// started no thread and asked for no world: a rank is there in milliseconds.
//
//   ForkedJob job([](Page::Rank& mine) { ...; ++mine.calls; });
//   job.signal(2, SIGKILL);
//   EXPECT_EQ(job.wait(0), 5) << job.rank(0).text;  // it caught an error
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <tessera/comm/world.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <ATen/Parallel.h>

namespace tessera::harness {

using namespace std::chrono_literals;

inline int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// What the ranks tell the test, in memory that all share.
struct Page {
  static constexpr int kRanks = 4;

  struct Rank {
    std::atomic<int64_t> calls;      // made so far
    std::atomic<int64_t> raised_us;  // when it caught an error
    char text[2000];                 // of that
    std::atomic<bool> done;          // has its results
    std::atomic<bool> may_end;       // set by the test

    /// Waits for the test's let_end().
    void wait_for_others() {
      done = true;
      while (!may_end) {
        std::this_thread::sleep_for(1ms);
      }
    }
  };
  Rank ranks[kRanks];
};

class ForkedJob {
 public:
  static constexpr int kRanks = Page::kRanks;

  /// One process alone is a world of its own, and may run_ranks().
  explicit ForkedJob(
      const std::function<void(Page::Rank&)>& body, int processes = kRanks) {
    static const int started = [] {
      at::set_num_threads(1);
      return 0;
    }();
    static_cast<void>(started);
    folder_ = std::filesystem::temp_directory_path() / "tessera_job_XXXXXX";
    TORCH_CHECK(
        mkdtemp(folder_.data()) != nullptr, folder_, ": ",
        std::strerror(errno));
    page_ = static_cast<Page*>(mmap(
        nullptr, sizeof(Page), PROT_READ | PROT_WRITE,
        MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    for (int r = 0; r < processes; ++r) {
      const pid_t child = fork();
      if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        unsetenv("TESSERA_RUN_RANKS");
        at::set_num_threads(1);  // renews LibTorch's pool, before threads do
        if (processes > 1) {
          set_rank(r, processes);
        }
        _exit(rank_main(r, body));
      }
      processes_.push_back(child);
    }
  }
  ~ForkedJob() {
    for (const pid_t process : processes_) {
      if (process > 0) {
        ::kill(process, SIGKILL);
        waitpid(process, nullptr, 0);
      }
    }
    munmap(page_, sizeof(Page));
    std::filesystem::remove_all(folder_);
  }
  ForkedJob(const ForkedJob&) = delete;
  ForkedJob& operator=(const ForkedJob&) = delete;

  const Page::Rank& rank(int r) const { return page_->ranks[r]; }
  void signal(int r, int number) const {
    ::kill(processes_[static_cast<size_t>(r)], number);
  }
  /// Waits until every rank has made this many calls.
  bool reaches(int64_t calls) const {
    return until([&] {
      return std::all_of(page_->ranks, page_->ranks + kRanks, [&](auto& rank) {
        return rank.calls >= calls;
      });
    });
  }
  /// Lets ranks end that wait for it, once these are done. A rank that ends
  /// without a word breaks the call that another is still in.
  void let_end(const std::vector<int>& ranks) {
    EXPECT_TRUE(until([&] {
      return std::all_of(ranks.begin(), ranks.end(), [&](int r) {
        return page_->ranks[r].done || page_->ranks[r].raised_us != 0;
      });
    }));
    for (Page::Rank& rank : page_->ranks) {
      rank.may_end = true;
    }
  }
  /// Waits for a rank's end; returns its exit status, -1 if it does not end.
  int wait(int r) {
    pid_t& process = processes_[static_cast<size_t>(r)];
    int status = 0;
    const bool ended =
        until([&] { return waitpid(process, &status, WNOHANG) == process; });
    if (!ended) {
      return -1;
    }
    process = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  static bool until(const std::function<bool()>& condition) {
    const int64_t limit = now_us() + 20'000'000;
    while (!condition()) {
      if (now_us() > limit) {
        return false;
      }
      std::this_thread::sleep_for(1ms);
    }
    return true;
  }

  void set_rank(int r, int processes) const {
    setenv("TESSERA_RANK", std::to_string(r).c_str(), 1);
    setenv("TESSERA_WORLD_SIZE", std::to_string(processes).c_str(), 1);
    setenv("TESSERA_ENGINE", "gloo", 1);
    setenv("TESSERA_STORE", (folder_ + "/store").c_str(), 1);
  }

  int rank_main(int r, const std::function<void(Page::Rank&)>& body) const {
    Page::Rank& mine = page_->ranks[r];
    const auto caught = [&](const std::string& text) {
      mine.raised_us = now_us();
      std::strncpy(mine.text, text.c_str(), sizeof(mine.text) - 1);
      return 5;
    };
    try {
      run([&] { body(mine); });
    } catch (const c10::Error& error) {
      return caught(error.what_without_backtrace());
    } catch (const std::exception& error) {
      return caught(error.what());
    }
    return 0;
  }

  std::string folder_;
  Page* page_ = nullptr;
  std::vector<pid_t> processes_;
};

}  // namespace tessera::harness
