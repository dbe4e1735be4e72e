// How a rank becomes a simulated one, and how that ends.
#include <cstdlib>

#include <harness/sharded_test.h>

namespace tessera {
namespace {

using testing::error_of;

TEST(RunSimulated, IsOneRankOfAWorldOfAnySize) {
  run_simulated({.rank = 123456, .size = int64_t{1} << 40}, [] {
    EXPECT_EQ(rank(), 123456);
    EXPECT_EQ(world_size(), int64_t{1} << 40);
    EXPECT_EQ(init(), init());
    EXPECT_EQ(init({.engine = Engine::kSimulated}).engine(), "simulated");
    init().set_deadline(std::chrono::seconds(3));
    EXPECT_EQ(init().deadline(), std::chrono::seconds(3));
  });
}

TEST(RunSimulated, EndsWithItsBody) {
  run_simulated({.rank = 2, .size = 4}, [] {
    set_machine_model({.link = {.latency = 1, .bandwidth = 1}});
    const auto mesh = testing::mesh_of({4});
    EXPECT_EQ(to_local(zeros({8}, mesh, {Shard(0)})).numel(), 2);
  });
  EXPECT_EQ(rank(), 0);
  EXPECT_EQ(world_size(), 1);
  EXPECT_EQ(machine_model().link.latency, Link().latency);
  EXPECT_EQ(DTensorSpec::live_count(), 0U);
}

TEST(RunSimulated, PassesTheThreadsModesOn) {
  const c10::NoGradGuard no_grad;
  run_simulated(
      {.rank = 2, .size = 4}, [] { EXPECT_FALSE(at::GradMode::is_enabled()); });
}

TEST(RunSimulated, RefusesRanksOutsideTheWorld) {
  const auto body = [] {};
  EXPECT_ERROR(
      "run_simulated: the rank must be 0 to size - 1; got rank 4 of size 4",
      [&] { run_simulated({.rank = 4, .size = 4}, body); }());
  EXPECT_ERROR("got rank -1 of size 4", [&] {
    run_simulated({.rank = -1, .size = 4}, body);
  }());
  EXPECT_ERROR("got rank 0 of size 0", [&] {
    run_simulated({.rank = 0, .size = 0}, body);
  }());
  EXPECT_ERROR("run_simulated: the body is empty", [&] {
    run_simulated({.rank = 0, .size = 4}, nullptr);
  }());
}

TEST(RunSimulated, DoesNotNest) {
  run_simulated({.rank = 3, .size = 4}, [] {
    EXPECT_ERROR(
        "run_simulated, rank 3: a rank cannot start ranks of its own",
        [&] { run_simulated({.rank = 0, .size = 2}, [] {}); }());
    EXPECT_ERROR(
        "run_ranks, rank 3: a rank cannot start ranks of its own",
        [&] { run_ranks(2, [] {}); }());
  });
  run_ranks(2, [] {
    EXPECT_ERROR("a rank cannot start ranks of its own", [&] {
      run_simulated({.rank = 0, .size = 2}, [] {});
    }());
  });
}

TEST(RunSimulated, RethrowsWithTheRank) {
  const std::string text = error_of([] {
    run_simulated(
        {.rank = 17, .size = 64}, [] { TORCH_CHECK_VALUE(false, "no luck"); });
  });
  EXPECT_NE(text.find("no luck"), std::string::npos) << text;
  EXPECT_NE(text.find("simulated rank 17 of 64"), std::string::npos) << text;
}

TEST(Init, RefusesToSimulateWithoutASimulatedRank) {
  if (std::getenv("TESSERA_ENGINE") != nullptr) {
    GTEST_SKIP() << "the program is a simulated rank";
  }
  EXPECT_ERROR(
      "init: this is no simulated rank, but rank 0 of 1 with engine threads; "
      "use run_simulated(",
      init({.engine = Engine::kSimulated}));
}

TEST(SimulatedEnvironment, MakesTheProcessARank) {
  if (std::getenv("TESSERA_RANK") == nullptr) {
    GTEST_SKIP() << "run by the test simulated_environment";
  }
  run([] {
    EXPECT_EQ(rank(), 65535);
    EXPECT_EQ(world_size(), 65536);
    EXPECT_EQ(init({.engine = Engine::kSimulated}).engine(), "simulated");
    const auto mesh = testing::mesh_of({256, 256});
    EXPECT_EQ(mesh.local_rank(0), 255);
    CommLog log;
    const auto t = ones({512, 2}, mesh, {Shard(0), Replicate()});
    EXPECT_EQ(full_tensor(t).size(0), 512);
    EXPECT_EQ(log.count(), 1);
  });
  // Other threads are the same rank; ranks of other kinds are what they say.
  int64_t seen = 0;
  std::thread([&] { seen = rank(); }).join();
  EXPECT_EQ(seen, 65535);
  run_simulated({.rank = 1, .size = 2}, [] { EXPECT_EQ(rank(), 1); });
  run_ranks(2, [] { EXPECT_EQ(world_size(), 2); });
}

TEST(SimulatedEnvironment, WantsARankAndASize) {
  if (std::getenv("TESSERA_ENGINE") == nullptr ||
      std::getenv("TESSERA_RANK") != nullptr) {
    GTEST_SKIP() << "run by the test simulated_environment_without_rank";
  }
  for (int again = 0; again < 2; ++again) {
    EXPECT_ERROR(
        "init: TESSERA_ENGINE=simulated wants to be told which rank of how "
        "many; set TESSERA_RANK and TESSERA_WORLD_SIZE",
        rank());
  }
}

}  // namespace
}  // namespace tessera
