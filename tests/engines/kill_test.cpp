// Processes that die or stop while they work over Gloo: the others raise,
// soon, with the rank's name, and can go on without it.
//
// Ranks are forked from this program, which has LibTorch loaded but has started
// no thread: a rank is there in milliseconds.
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
#include <iostream>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "comm/expect_error.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
constexpr int kRanks = 4;

int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// What the ranks tell the test, in memory that all share.
struct Page {
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

class Job {
 public:
  explicit Job(const std::function<void(Page::Rank&)>& body) {
    static const int started = [] {
      at::set_num_threads(1);
      return 0;
    }();
    static_cast<void>(started);
    folder_ = fs::temp_directory_path() / "tessera_kill_XXXXXX";
    TORCH_CHECK(
        mkdtemp(folder_.data()) != nullptr, folder_, ": ",
        std::strerror(errno));
    page_ = static_cast<Page*>(mmap(
        nullptr, sizeof(Page), PROT_READ | PROT_WRITE,
        MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    for (int r = 0; r < kRanks; ++r) {
      const pid_t child = fork();
      if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(rank_main(r, body));
      }
      processes_.push_back(child);
    }
  }
  ~Job() {
    for (const pid_t process : processes_) {
      if (process > 0) {
        ::kill(process, SIGKILL);
        waitpid(process, nullptr, 0);
      }
    }
    munmap(page_, sizeof(Page));
    fs::remove_all(folder_);
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

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

  int rank_main(int r, const std::function<void(Page::Rank&)>& body) const {
    setenv("TESSERA_RANK", std::to_string(r).c_str(), 1);
    setenv("TESSERA_WORLD_SIZE", std::to_string(kRanks).c_str(), 1);
    setenv("TESSERA_ENGINE", "gloo", 1);
    setenv("TESSERA_STORE", (folder_ + "/store").c_str(), 1);
    unsetenv("TESSERA_RUN_RANKS");
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

at::Tensor zeros(int64_t count) {
  return at::zeros({count});
}

// A deadline counts from the call after the first use of each group: it is not
// to end while ranks start and connect.
constexpr int64_t kConnected = 3;

void work_for_ever(
    Page::Rank& mine,
    std::optional<std::chrono::milliseconds> deadline = std::nullopt) {
  const Communicator all = init().communicator();
  const Communicator pair =
      init().communicator({rank() / 2 * 2, rank() / 2 * 2 + 1});
  for (;; ++mine.calls) {
    if (deadline && mine.calls == kConnected) {
      init().set_deadline(*deadline);
    }
    switch (mine.calls % 6) {
      case 0:
        all.all_reduce(zeros(5));
        break;
      case 1:
        all.all_gather(zeros(4 * 30000), zeros(30000));
        break;
      case 2:
        pair.all_reduce(zeros(300));
        break;
      case 3:
        all.broadcast(zeros(100000), 1);
        break;
      case 4:
        all.all_to_all(zeros(40000), zeros(40000));
        break;
      default:
        all.barrier();
    }
  }
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

TEST(KillTest, EverySurvivorNamesTheDead) {
  const int trials = 100;
  std::mt19937 random(11);
  std::vector<double> delays;
  for (int trial = 0; trial < trials; ++trial) {
    SCOPED_TRACE("trial " + std::to_string(trial));
    Job job([](Page::Rank& mine) { work_for_ever(mine); });
    const int victim = static_cast<int>(random() % kRanks);
    ASSERT_TRUE(job.reaches(static_cast<int64_t>(1 + random() % 11)));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20000));
    const int64_t killed = now_us();
    job.signal(victim, SIGKILL);
    EXPECT_EQ(job.wait(victim), 128 + SIGKILL);
    for (int r = 0; r < kRanks; ++r) {
      if (r != victim) {
        ASSERT_EQ(job.wait(r), 5) << "rank " << r << " did not raise";
        expect_parts(
            job.rank(r).text, {"rank " + std::to_string(victim) + " failed",
                               "on group {", "rank " + std::to_string(r)});
        delays.push_back(
            static_cast<double>(job.rank(r).raised_us - killed) / 1000);
      }
    }
  }
  std::cout << trials << " kills: survivors raise after: median "
            << median(delays) << " ms, worst "
            << *std::max_element(delays.begin(), delays.end()) << " ms\n";
  EXPECT_LT(median(delays), 1000);
}

TEST(KillTest, AStoppedRankEndsTheWaitAtTheDeadline) {
  static constexpr std::chrono::milliseconds kDeadline = 1s;
  std::mt19937 random(5);
  std::vector<double> delays;
  for (int trial = 0; trial < 10; ++trial) {
    SCOPED_TRACE("trial " + std::to_string(trial));
    Job job([](Page::Rank& mine) { work_for_ever(mine, kDeadline); });
    const int victim = static_cast<int>(random() % kRanks);
    ASSERT_TRUE(job.reaches(6));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20000));
    const int64_t stopped = now_us();
    job.signal(victim, SIGSTOP);
    for (int r = 0; r < kRanks; ++r) {
      if (r != victim) {
        ASSERT_EQ(job.wait(r), 5) << "rank " << r << " did not raise";
        // The first to raise says so; it is quoted by those who hear of it.
        expect_parts(
            job.rank(r).text,
            {"on group {", "did not complete within the deadline of 1000 ms"});
        delays.push_back(
            static_cast<double>(job.rank(r).raised_us - stopped) / 1000);
      }
    }
  }
  const double worst = *std::max_element(delays.begin(), delays.end());
  std::cout << "stopped: raised after: median " << median(delays)
            << " ms, worst " << worst << " ms (deadline " << kDeadline.count()
            << " ms)\n";
  EXPECT_LT(median(delays), (kDeadline + 1s) / 1ms);
  EXPECT_LT(worst, (kDeadline + 5s) / 1ms);
}

TEST(KillTest, SurvivorsGoOnInAGroupOfTheirOwn) {
  Job job([](Page::Rank& mine) {
    const World world = init();
    try {
      work_for_ever(mine);
    } catch (const c10::Error&) {
    }
    const at::Tensor sum = at::full({1}, world.rank() + 1, at::kLong);
    world.rebuild({0, 2, 3}).all_reduce(sum);
    TORCH_CHECK(sum.item<int64_t>() == 8, "the sum is ", sum.item<int64_t>());
    mine.wait_for_others();
  });
  ASSERT_TRUE(job.reaches(3));
  job.signal(1, SIGKILL);
  job.let_end({0, 2, 3});
  for (const int r : {0, 2, 3}) {
    EXPECT_EQ(job.wait(r), 0) << job.rank(r).text;
  }
}

// What a process holds.
struct Holdings {
  int64_t files = 0;
  int64_t threads = 0;

  static int64_t entries(const char* folder) {
    return std::distance(
        fs::directory_iterator(folder), fs::directory_iterator());
  }
  static Holdings now() {
    return {entries("/proc/self/fd"), entries("/proc/self/task")};
  }
  bool within(const Holdings& other) const {
    return files <= other.files && threads <= other.threads;
  }
  std::string text() const {
    return std::to_string(files) + " files, " + std::to_string(threads) +
           " threads";
  }
};

// The last group's connections and thread end a moment after it; returns the
// least that was held within the time, or what is within the limit.
Holdings settled(std::chrono::milliseconds time, Holdings limit = {}) {
  Holdings least = Holdings::now();
  const int64_t end = now_us() + time / 1us;
  while (!least.within(limit) && now_us() < end) {
    std::this_thread::sleep_for(20ms);
    const Holdings next = Holdings::now();
    least = next.within(least) ? next : least;
  }
  return least;
}

TEST(KillTest, CyclesOfFailureAndRebuildLeaveNothingBehind) {
  Job job([](Page::Rank& mine) {
    const World world = init();
    const auto cycle = [&](int64_t i) {
      const std::string error = error_of([&] {
        world.communicator().all_reduce(zeros(world.rank() == i % 4 ? 1 : 2));
      });
      TORCH_CHECK(
          error.find("ranks disagree on the number of elements") !=
              std::string::npos,
          "cycle ", i, ": ", error);
      const at::Tensor sum = at::full({1}, world.rank() + i, at::kLong);
      world.rebuild({0, 1, 2, 3}).all_reduce(sum);
      TORCH_CHECK(sum.item<int64_t>() == 6 + 4 * i, "cycle ", i);
    };
    for (int64_t i = 0; i < 10; ++i) {
      cycle(i);
    }
    const Holdings before = settled(500ms);
    for (int64_t i = 0; i < 200; ++i, ++mine.calls) {
      cycle(i);
    }
    const Holdings after = settled(5s, before);
    TORCH_CHECK(after.within(before), before.text(), " became ", after.text());
    const std::string text = before.text() + " became " + after.text();
    std::strncpy(mine.text, text.c_str(), sizeof(mine.text) - 1);
    mine.wait_for_others();
  });
  EXPECT_TRUE(job.reaches(200));
  job.let_end({0, 1, 2, 3});
  for (int r = 0; r < kRanks; ++r) {
    EXPECT_EQ(job.wait(r), 0)
        << job.rank(r).text << " after " << job.rank(r).calls << " cycles";
  }
  std::cout << "200 cycles: " << job.rank(0).text << "\n";
}

}  // namespace
}  // namespace tessera
