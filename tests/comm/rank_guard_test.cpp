// Threads that a rank starts by itself.
#include <gtest/gtest.h>
#include <tessera/comm/comm_log.h>
#include <tessera/comm/device_mesh.h>
#include <tessera/comm/world.h>

#include <atomic>
#include <functional>
#include <future>
#include <thread>

#include <ATen/autocast_mode.h>
#include <ATen/ops/full.h>
#include <c10/core/AutogradState.h>

#include "comm/expect_error.h"
#include "harness/ranks.h"

namespace tessera {
namespace {

using harness::run_ranks;

at::Tensor number(double value) {
  return at::full({1}, value, at::kDouble);
}

// Runs the body on a thread of its own; what it throws is thrown here.
void on_thread(const std::function<void()>& body) {
  std::async(std::launch::async, body).get();
}

TEST(RankGuardTest, AThreadBesideRanksHasNoRankOfItsOwn) {
  if (harness::on_processes()) {
    harness::skip_test("a process has one rank, that of all its threads");
  }
  const auto refused = [](const char* call, const std::function<void()>& body) {
    expect_error<c10::ValueError>(
        body, {std::string(call) + ": this thread is none of the ranks",
               "RankGuard guard(world)"});
  };
  run_ranks(2, [&] {
    on_thread([&] {
      refused("rank", [] { rank(); });
      refused("world_size", [] { world_size(); });
      refused("init", [] { init(); });
      refused("init", [] { init_device_mesh(at::kCPU, {1}); });
    });
  });
  run_simulated({.rank = 5, .size = 8}, [&] {
    on_thread([&] { refused("rank", [] { rank(); }); });
  });
  EXPECT_EQ(world_size(), 1);  // before and after, the program runs alone
  on_thread([] { EXPECT_EQ(world_size(), 1); });
}

TEST(RankGuardTest, MakesAThreadPartOfItsRank) {
  run_ranks(3, [] {
    const World world = init();
    on_thread([&] {
      const RankGuard guard(world);
      EXPECT_TRUE(init() == world);
      EXPECT_EQ(rank(), world.rank());
      EXPECT_EQ(world_size(), 3);
      const DeviceMesh mesh = init_device_mesh(at::kCPU, {3}, {"tp"});
      EXPECT_EQ(mesh.local_rank(), world.rank());
      CommLog log;
      const at::Tensor sum = number(1 << rank());
      mesh.communicator().all_reduce(sum);
      EXPECT_EQ(sum.item<double>(), 7);
      EXPECT_EQ(log.count(), 1);
    });
  });
}

TEST(RankGuardTest, WorksOnASimulatedRank) {
  run_simulated({.rank = 40000, .size = 65536}, [] {
    on_thread([world = init()] {
      const RankGuard guard(world);
      EXPECT_EQ(rank(), 40000);
      EXPECT_EQ(init_device_mesh(at::kCPU, {256, 256}).local_rank(0), 156);
    });
  });
}

TEST(RankGuardTest, HasTheModesOfARankWhileItLives) {
  run_ranks(2, [] {
    on_thread([world = init()] {
      const auto& modes = c10::AutogradState::get_tls_state();
      {
        const RankGuard guard(world);
        const bool threads = !harness::on_processes();
        EXPECT_EQ(modes.get_multithreading_enabled(), !threads);
        EXPECT_EQ(modes.get_view_replay_enabled(), threads);
        EXPECT_EQ(at::autocast::is_autocast_cache_enabled(), !threads);
      }
      EXPECT_TRUE(modes.get_multithreading_enabled());
      EXPECT_FALSE(modes.get_view_replay_enabled());
      EXPECT_TRUE(at::autocast::is_autocast_cache_enabled());
    });
  });
}

TEST(RankGuardTest, EndsWithItsScopeAndNests) {
  if (harness::on_processes()) {
    harness::skip_test("a process has one rank, that of all its threads");
  }
  run_ranks(2, [] {
    on_thread([world = init()] {
      {
        const RankGuard outer(world);
        {
          const RankGuard inner(world, "inner");
          EXPECT_EQ(rank(), world.rank());
        }
        EXPECT_EQ(rank(), world.rank());
      }
      EXPECT_NE(error_of([] { rank(); }), "");
    });
    const RankGuard own(init());  // on the rank's own thread: nothing changes
    EXPECT_EQ(world_size(), 2);
  });
}

TEST(RankGuardTest, RefusesAThreadOfAnotherRank) {
  if (harness::on_processes()) {
    harness::skip_test("a process has one rank");
  }
  std::vector<World> worlds(2, init());
  run_ranks(2, [&] {
    const auto mine = static_cast<size_t>(rank());
    worlds[mine] = init();
    init().communicator().barrier();
    const World& other = worlds[1 - mine];
    const std::string text =
        "RankGuard of rank " + std::to_string(1 - rank()) + " of 2";
    const std::string is = "it is rank " + std::to_string(rank()) + " of 2";
    expect_error<c10::ValueError>(
        [&] { const RankGuard guard(other); }, {text, is});
    on_thread([&] {
      const RankGuard guard(worlds[mine]);
      expect_error<c10::ValueError>(
          [&] { const RankGuard again(other); }, {text, is});
    });
    expect_error<c10::ValueError>(
        [] { const RankGuard guard(init(), ""); }, {"RankGuard", "name"});
    init().communicator().barrier();
  });
}

TEST(RankGuardTest, AThreadOfARankCannotStartRanks) {
  if (harness::on_processes()) {
    harness::skip_test("a job of processes may");
  }
  run_ranks(2, [] {
    on_thread([world = init()] {
      const RankGuard guard(world);
      expect_error<c10::ValueError>(
          [] { tessera::run_ranks(2, [] {}); },
          {"run_ranks, rank ", "ranks of its own"});
    });
  });
}

TEST(RankGuardTest, ThreadsWithGroupsOfTheirOwnCallAtOnce) {
  run_ranks(2, [] {
    const World world = init();
    const Communicator one = world.communicator({0, 1});
    const Communicator other = world.communicator({1, 0});
    const auto add_up = [](const Communicator& group, double start) {
      double sum = start;
      for (int i = 0; i < 100; ++i) {
        const at::Tensor t = number(i + start);
        group.all_reduce(t);
        sum += t.item<double>();
      }
      return sum;
    };
    auto helper = std::async(std::launch::async, [&] {
      const RankGuard guard(world);
      return add_up(other, 1000);
    });
    EXPECT_EQ(add_up(one, 0), 9900);
    EXPECT_EQ(helper.get(), 1000 + 2 * 100 * 1000 + 9900);
  });
}

TEST(RankGuardTest, ThreadsThatMeetInAnotherOrderAreToldApart) {
  run_ranks(2, [] {
    const World world = init();
    const Communicator all = world.communicator();
    std::atomic<int> failures = 0;
    const auto call = [&] {
      const std::string text = error_of([&] { all.all_reduce(number(1)); });
      failures += text.find("which of their threads calls") != std::string::npos
                      ? 1
                      : 0;
    };
    const auto call_from_helper = [&] {
      on_thread([&] {
        const RankGuard guard(world, "loader");
        call();
      });
    };
    // Equal calls, which without names would add up what does not belong
    // together.
    if (rank() == 0) {
      call();
    } else {
      call_from_helper();
    }
    EXPECT_EQ(failures, 1);
  });
}

TEST(RankGuardTest, ASecondThreadIsRefusedWhileOneWaitsInTheGroup) {
  run_ranks(2, [] {
    const World world = init();
    const Communicator all = world.communicator();
    const Communicator other = world.communicator({1, 0});
    std::string first, second;
    if (rank() == 0) {
      std::atomic<bool> about_to_wait = false;
      std::thread helper([&] {
        const RankGuard guard(world);
        about_to_wait = true;
        second = error_of([&] { all.all_reduce(number(1)); });
      });
      while (!about_to_wait) {
        std::this_thread::yield();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      first = error_of([&] { all.all_reduce(number(2)); });
      helper.join();
      expect_parts(
          first, {"all_reduce(f64[1], sum) on group {0, 1}, rank 0",
                  "two threads of rank 0 call at once", "group of its own"});
      expect_parts(second, {"two threads of rank 0 call at once"});
      other.barrier();
    } else {
      other.barrier();  // nobody waits for what was refused
      expect_parts(
          error_of([&] { all.all_reduce(number(1)); }),
          {"two threads of rank 0 call at once"});
    }
  });
}

TEST(RankGuardTest, AnotherThreadMayWaitForWhatARankHasStarted) {
  run_ranks(2, [] {
    const Communicator all = init().communicator();
    const at::Tensor first = number(rank() == 0 ? 1 : 2);
    const at::Tensor second = number(rank() == 0 ? 10 : 20);
    Communicator::Work started = all.all_reduce_async(first);
    std::thread waiter([&] { started.wait(); });
    if (rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
    }
    all.all_reduce(second);
    waiter.join();
    EXPECT_EQ(first.item<double>(), 3);
    EXPECT_EQ(second.item<double>(), 30);
  });
}

}  // namespace
}  // namespace tessera
