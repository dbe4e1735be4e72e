// Saves beside the program, by ranks that are processes over Gloo.
#include <gtest/gtest.h>
#include <tessera/checkpoint/checkpoint.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

#include <ATen/ops/ones.h>
#include <checkpoint/generation.h>
#include <checkpoint/scratch_folder.h>
#include <harness/forked_job.h>

namespace tessera::testing {
namespace {

using checkpoint::Handle;
using checkpoint::Progress;
using harness::ForkedJob;
using harness::Page;
namespace fs = std::filesystem;

class AsyncSaveOfProcesses : public ::testing::Test {
 protected:
  // First uses are made here, so that forked processes need not make them.
  void SetUp() override {
    at::set_num_threads(1);
    run_ranks(4, [&] { save_generation(1, path_); });
  }

  // Returns the generation that is there, after which one save cleans up.
  int64_t inspect() {
    int64_t found = 0;
    run_ranks(4, [&] {
      const int64_t mine = load_generation(path_);
      init().communicator().barrier();
      save_generation(3, path_, {.overwrite = true});
      if (rank() == 0) {
        found = mine;
      }
    });
    EXPECT_EQ(names_in(folder_.path()), std::set<std::string>{"a"});
    return found;
  }

  ScratchFolder folder_;
  const std::string path_ = folder_ / "a";
};

TEST_F(AsyncSaveOfProcesses, CollectivesGoOnAndTheCheckpointBecomesVisible) {
  ForkedJob job([&](Page::Rank& mine) {
    const Handle handle = save_generation_async(
        2, path_, {.overwrite = true, .progress = [](const Progress&) {
                     std::this_thread::sleep_for(std::chrono::milliseconds(5));
                   }});
    for (int step = 0; step < 20; ++step) {
      init().communicator().all_reduce(at::ones({100}));
    }
    while (!handle.done()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    TORCH_CHECK(load_generation(path_) == 2);
    handle.wait();
    mine.wait_for_others();
  });
  job.let_end({0, 1, 2, 3});
  for (int r = 0; r < 4; ++r) {
    EXPECT_EQ(job.wait(r), 0) << job.rank(r).text;
  }
  EXPECT_EQ(inspect(), 2);
}

TEST_F(AsyncSaveOfProcesses, OneThatIsKilledLeavesTheOldCheckpoint) {
  for (const int victim : {0, 2}) {
    const int64_t before = victim == 0 ? 1 : 3;
    ForkedJob job([&](Page::Rank&) {
      const auto die = [is_victim = init().rank() == victim](const Progress&) {
        if (is_victim) {
          ::raise(SIGKILL);
        }
      };
      const Handle handle =
          save_generation_async(2, path_, {.overwrite = true, .progress = die});
      handle.wait();
    });
    EXPECT_EQ(job.wait(victim), 128 + SIGKILL);
    for (int r = 0; r < 4; ++r) {
      if (r != victim) {
        EXPECT_EQ(job.wait(r), 5) << "rank " << r << " did not raise";
        EXPECT_PRED_FORMAT2(
            ::testing::IsSubstring, "rank " + std::to_string(victim),
            std::string(job.rank(r).text));
      }
    }
    EXPECT_EQ(inspect(), before);
  }
}

TEST_F(AsyncSaveOfProcesses, AnErrorOfOneIsThrownOnAll) {
  ForkedJob job([&](Page::Rank& mine) {
    const auto fail = [is_bad = init().rank() == 1](const Progress&) {
      TORCH_CHECK(!is_bad, "no power");
    };
    const Handle handle =
        save_generation_async(2, path_, {.overwrite = true, .progress = fail});
    EXPECT_ERROR("on rank 1: no power", handle.wait());
    TORCH_CHECK(!::testing::Test::HasFailure());
    mine.wait_for_others();
  });
  job.let_end({0, 1, 2, 3});
  for (int r = 0; r < 4; ++r) {
    EXPECT_EQ(job.wait(r), 0) << job.rank(r).text;
  }
  EXPECT_EQ(inspect(), 1);
}

}  // namespace
}  // namespace tessera::testing
