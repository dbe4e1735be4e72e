// How a program finds its world.
#include <gtest/gtest.h>
#include <tessera/comm/world.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>
#include <c10/core/AutogradState.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include "comm/expect_error.h"
#include "harness/ranks.h"

namespace tessera {
namespace {

using harness::run_ranks;

// Sets an environment variable for one scope.
class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) {
    setenv(name, value, 1);
  }
  ~Environment() { unsetenv(name_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
};

TEST(InitTest, AloneThereIsOneRank) {
  const World world = init();
  EXPECT_EQ(world.rank(), 0);
  EXPECT_EQ(world.size(), 1);
  EXPECT_EQ(rank(), 0);
  EXPECT_EQ(world_size(), 1);
  EXPECT_EQ(world.engine(), "threads");
  EXPECT_TRUE(world == init());
}

TEST(InitTest, InsideRunRanksTheWorldIsTheThreads) {
  std::atomic<int64_t> seen = 0;
  run_ranks(5, [&] {
    const World world = init();
    EXPECT_EQ(world.size(), 5);
    EXPECT_EQ(world_size(), 5);
    EXPECT_EQ(world.rank(), rank());
    EXPECT_TRUE(world == init());
    seen |= int64_t{1} << rank();
  });
  EXPECT_EQ(seen, 31);
  EXPECT_EQ(world_size(), 1);
}

TEST(InitTest, TheDeadlineIsFiveMinutesUnlessSet) {
  run_ranks(2, [] {
    EXPECT_EQ(init().deadline(), std::chrono::minutes(5));
    init().communicator().barrier();
    init({.deadline = std::chrono::seconds(9)});
    init().communicator().barrier();
    EXPECT_EQ(init().deadline(), std::chrono::seconds(9));
    init().communicator().barrier();
    init().set_deadline(std::chrono::seconds(3));
    EXPECT_EQ(init().deadline(), std::chrono::seconds(3));
    expect_error<c10::ValueError>(
        [] { init().set_deadline(std::chrono::seconds(0)); },
        {"set_deadline", "positive", "got 0 ms"});
  });
}

TEST(InitTest, AnEngineThatCannotBeUsedIsNamed) {
  expect_error<c10::ValueError>(
      [] { init({.engine = Engine::kMpi}); },
      {"init", "not started as one of several", "mpirun"});
  expect_error<c10::NotImplementedError>(
      [] { run_ranks(2, [] {}, {.engine = Engine::kNccl}); },
      {"run_ranks", "no engine 'nccl'",
       "it has: threads, gloo, mpi, simulated"});
  expect_error<c10::ValueError>(
      [] { init({.deadline = std::chrono::milliseconds(-1)}); },
      {"init", "positive", "got -1 ms"});
}

TEST(InitTest, UnderTheLauncherOnlyRanksMayAsk) {
  const Environment ranks("TESSERA_NUM_RANKS", "3");
  expect_error<c10::ValueError>(
      [] { init(); }, {"init", "3 ranks as threads", "tessera::run"});
}

TEST(RunRanksTest, WrongArgumentsAreNamed) {
  expect_error<c10::ValueError>(
      [] { run_ranks(0, [] {}); }, {"run_ranks", "1 to 4096", "got 0"});
  expect_error<c10::ValueError>(
      [] { run_ranks(-3, [] {}); }, {"run_ranks", "got -3"});
  expect_error<c10::ValueError>(
      [] { run_ranks(2, nullptr); }, {"run_ranks", "body is empty"});
}

TEST(RunRanksTest, ARankCannotStartRanks) {
  run_ranks(2, [] {
    expect_error<c10::ValueError>(
        [] { run_ranks(2, [] {}); }, {"run_ranks, rank ", "ranks of its own"});
  });
}

TEST(RunRanksTest, TwoWorldsMayRunAtOnce) {
  const auto world = [](int n) {
    run_ranks(n, [n] {
      const at::Tensor sum = at::zeros({1}).add_(1);
      for (int i = 0; i < 100; ++i) {
        init().communicator().all_reduce(sum, ReduceOp::kMax);
      }
      EXPECT_EQ(init().size(), n);
      init().communicator().all_reduce(sum);
      EXPECT_EQ(sum.item<float>(), static_cast<float>(n));
    });
  };
  std::thread other(world, 3);
  world(2);
  other.join();
}

TEST(RunRanksTest, RanksInheritTheCallersModes) {
  const c10::AutoGradMode no_grad(false);
  run_ranks(2, [] {
    EXPECT_FALSE(c10::GradMode::is_enabled());
    EXPECT_FALSE(c10::InferenceMode::is_enabled());
  });
  const c10::InferenceMode inference;
  run_ranks(2, [] {
    EXPECT_TRUE(c10::InferenceMode::is_enabled());
    const at::Tensor sum = at::zeros({1}).add_(1);
    init().communicator().all_reduce(sum);
    EXPECT_EQ(sum.item<float>(), 2);
  });
}

TEST(RunRanksTest, BackwardStaysOnTheRanksThreadAndViewsReplay) {
  run_ranks(2, [] {
    const auto& modes = c10::AutogradState::get_tls_state();
    EXPECT_FALSE(modes.get_multithreading_enabled());
    EXPECT_TRUE(modes.get_view_replay_enabled());
    EXPECT_TRUE(c10::GradMode::is_enabled());
  });
}

TEST(RunRanksTest, RanksShareTheIntraOpThreads) {
  const int all = at::get_num_threads();
  run_ranks(2, [&] { EXPECT_EQ(at::get_num_threads(), std::max(1, all / 2)); });
  EXPECT_EQ(at::get_num_threads(), all);
  std::thread([&] { EXPECT_EQ(at::get_num_threads(), all); }).join();
}

TEST(RunTest, TheLauncherSaysHowManyRanks) {
  std::atomic<int> count = 0;
  run([&] {
    EXPECT_EQ(world_size(), 1);
    ++count;
  });
  EXPECT_EQ(count, 1);
  const Environment ranks("TESSERA_NUM_RANKS", "3");
  const Environment engine("TESSERA_ENGINE", "threads");
  run([&] {
    EXPECT_EQ(world_size(), 3);
    ++count;
  });
  EXPECT_EQ(count, 4);
}

TEST(RunTest, ABadNumberOfRanksIsShown) {
  for (const char* text : {"0", "-2", "four", "3x", "99999999999999999999"}) {
    const Environment ranks("TESSERA_NUM_RANKS", text);
    expect_error<c10::ValueError>(
        [] { run([] {}); },
        {"TESSERA_NUM_RANKS", "1 to 4096", std::string("got '") + text});
  }
}

TEST(WorldTest, GroupsAreChecked) {
  run_ranks(3, [] {
    const World world = init();
    expect_error<c10::ValueError>(
        [&] { world.communicator(std::vector<int64_t>{}); },
        {"communicator, rank ", "got none"});
    expect_error<c10::IndexError>(
        [&] {
          world.communicator({0, 1, 2, 3});
        },
        {"group {0, 1, 2, 3}", "0 to 2"});
    expect_error<c10::IndexError>(
        [&] {
          world.communicator({-1, 0, 1, 2});
        },
        {"0 to 2"});
    expect_error<c10::ValueError>(
        [&] {
          world.communicator({0, 1, 2, 1});
        },
        {"rank 1 occurs twice"});
    if (world.rank() == 2) {
      expect_error<c10::ValueError>(
          [&] {
            world.communicator({0, 1});
          },
          {"group {0, 1}, rank 2", "only ranks of a group"});
    }
  });
}

}  // namespace
}  // namespace tessera
