// Processes that die or stop while they work over Gloo: the others raise,
// soon, with the rank's name, and can go on without it.
//
// Ranks are forked from this program (harness/forked_job.h).
#include <gtest/gtest.h>
#include <tessera/comm/world.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "comm/expect_error.h"
#include "harness/forked_job.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using harness::now_us;
using harness::Page;
using Job = harness::ForkedJob;
constexpr int kRanks = Job::kRanks;

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
