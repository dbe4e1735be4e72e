// Processes that are killed at any call of the file system while 4 ranks save,
// at once or beside the program: afterwards there is the old checkpoint or the
// new one, never a mix, and the next save cleans up.
//
//   one rank of a job over Gloo, while the others live on
//   all ranks at once, threads of one process
//
// `make test` takes a sample of the calls, TESSERA_LONG=1 all of them. What is
// left is looked at in the test's own process, by threads.
#include <gtest/gtest.h>
#include <tessera/checkpoint/checkpoint.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <set>
#include <string>
#include <vector>

#include <checkpoint/generation.h>
#include <checkpoint/scratch_folder.h>
#include <harness/forked_job.h>
#include <io/files/faulty_file_system.h>

namespace tessera::testing {
namespace {

using checkpoint::Format;
using harness::ForkedJob;
using harness::Page;
using io_test::FaultyFileSystem;
namespace fs = std::filesystem;

bool is_long() {
  const char* value = std::getenv("TESSERA_LONG");
  return value != nullptr && std::string(value) != "0" && *value != '\0';
}

// What is saved over what, where.
struct Setting {
  Format format = Format::kTessera;
  bool overwrites = false;
  bool has_exchange = true;  // of two names, by one rename
  bool is_async = false;

  std::string text() const {
    return checkpoint::to_string(format) + (is_async ? ", beside," : "") +
           (overwrites ? " over an old one" : " to a new path") +
           (has_exchange ? "" : " without exchange");
  }
  checkpoint::SaveOptions options() const {
    return {.format = format, .overwrite = overwrites};
  }
};

std::vector<Setting> settings(bool is_async) {
  std::vector<Setting> all;
  for (const Format format :
       {Format::kTessera, Format::kDcp, Format::kSafetensors}) {
    all.push_back({format, false, true, is_async});
    all.push_back({format, true, true, is_async});
    all.push_back({format, true, false, is_async});
  }
  return all;
}

// Looks at what a killed save has left, on 4 threads, and saves once more.
// Returns the generation that was there, 0 for none.
int64_t inspect(const std::string& runs) {
  int64_t found = 0;
  run_ranks(4, [&] {
    const bool is_there =
        fs::exists(runs + "/a") || fs::exists(runs + "/.a.tessera-previous");
    const int64_t mine = is_there ? load_generation(runs + "/a") : 0;
    init().communicator().barrier();
    save_generation(3, runs + "/a", {.overwrite = true});
    TORCH_CHECK(load_generation(runs + "/a") == 3);
    if (rank() == 0) {
      found = mine;
    }
  });
  EXPECT_EQ(names_in(runs), std::set<std::string>{"a"}) << "leftovers";
  return found;
}

// Whether the save is beside the program.
class Kills : public ::testing::TestWithParam<bool> {
 protected:
  // What is done here once, forked processes need not do: registrations, first
  // uses. Threads of run_ranks() are over when they are forked.
  void SetUp() override {
    at::set_num_threads(1);  // no pool that would not be there after a fork
    run_ranks(4, [&] {
      save_generation(1, folder_ / "old");
      load_generation(folder_ / "old");
    });
  }

  // A folder as it is before the save.
  std::string prepare(const Setting& setting) {
    const std::string runs = folder_ / "runs";
    fs::remove_all(runs);
    fs::create_directory(runs);
    if (setting.overwrites) {
      fs::copy(folder_ / "old", runs + "/a", fs::copy_options::recursive);
    }
    return runs;
  }

  static void save(const Setting& setting, const std::string& runs) {
    if (setting.is_async) {
      save_generation_async(2, runs + "/a", setting.options()).wait();
    } else {
      save_generation(2, runs + "/a", setting.options());
    }
  }

  // Never destroyed: where another rank is killed, a thread still writes when
  // its process ends.
  static FaultyFileSystem& faulty_files() { return *new FaultyFileSystem; }

  // Four processes that save, of which one may be killed at a call.
  static ForkedJob start_job(
      const Setting& setting, const std::string& runs, int victim = -1,
      int64_t call = 0) {
    return ForkedJob([=](Page::Rank& mine) {
      FaultyFileSystem& files = faulty_files();
      set_up(files, setting, init().rank() == victim ? call : 0);
      const io::SystemFilesReplaced replaced(files);
      save(setting, runs);
      tell_calls(files, mine);
      mine.wait_for_others();
    });
  }

  // One process of four threads that save, which may be killed.
  static ForkedJob start_threads(
      const Setting& setting, const std::string& runs, int64_t call = 0) {
    return ForkedJob(
        [=](Page::Rank& mine) {
          FaultyFileSystem& files = faulty_files();
          set_up(files, setting, call);
          const io::SystemFilesReplaced replaced(files);
          run_ranks(4, [&] { save(setting, runs); });
          tell_calls(files, mine);
        },
        1);
  }

  static void set_up(
      FaultyFileSystem& files, const Setting& setting, int64_t call) {
    if (!setting.has_exchange) {
      files.refuse_exchange();
    }
    if (call > 0) {
      files.kill_at(call);
    }
  }

  // The calls to be killed at: all, or some; of our own format also renames and
  // what follows them.
  std::vector<int64_t> points(
      const Setting& setting, const Page::Rank& counted) {
    const std::string calls = counted.text;
    EXPECT_GT(calls.size(), 2U);
    constexpr size_t kStride = 60;
    std::vector<int64_t> chosen;
    for (size_t i = 0; i < calls.size(); ++i) {
      const bool is_near =
          setting.format == Format::kTessera &&
          calls.substr(i > 0 ? i - 1 : 0, 2).find('R') != std::string::npos;
      if (is_long() || is_near || phase_++ % kStride == 0) {
        chosen.push_back(static_cast<int64_t>(i) + 1);
      }
    }
    return chosen;
  }

  // Says which calls there were, a letter for each: R for those that rename.
  static void tell_calls(const FaultyFileSystem& files, Page::Rank& mine) {
    std::string calls;
    for (const std::string& call : files.log()) {
      calls += call.starts_with("rename") ? 'R' : call[0];
    }
    std::strncpy(mine.text, calls.c_str(), sizeof(mine.text) - 1);
  }

  static void expect_survivor(ForkedJob& job, int r, int victim) {
    EXPECT_EQ(job.wait(r), 5) << "rank " << r << " did not raise";
    EXPECT_PRED_FORMAT2(
        ::testing::IsSubstring, "rank " + std::to_string(victim),
        std::string(job.rank(r).text));
  }

  // Checks and counts what is there; tells whether it is the new checkpoint.
  bool judge(const Setting& setting, const std::string& runs, bool was_new) {
    const int64_t found = inspect(runs);
    const int64_t before = setting.overwrites ? 1 : 0;
    EXPECT_TRUE(found == before || found == 2) << "generation " << found;
    EXPECT_TRUE(found == 2 || !was_new) << "once new, it stays new";
    ++(found == 2 ? new_ones_ : old_ones_);
    return found == 2;
  }

  void report(const char* what) const {
    std::cout << (GetParam() ? "save_async, " : "save, ") << what << ": "
              << old_ones_ + new_ones_ << " kills; afterwards " << old_ones_
              << " times as before, " << new_ones_
              << " times the new checkpoint\n";
    EXPECT_GT(old_ones_, 0);
    EXPECT_GT(new_ones_, 0);
    EXPECT_GE(old_ones_ + new_ones_, is_long() ? 500 : 15);
  }

  ScratchFolder folder_;
  int64_t phase_ = 0;
  int64_t old_ones_ = 0;
  int64_t new_ones_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Calls, Kills, ::testing::Bool(), [](const auto& test) {
  return std::string(test.param ? "save_async" : "save");
});

TEST_P(Kills, OneRankOfAJobAtAnyCall) {
  for (const Setting& setting : settings(GetParam())) {
    ForkedJob counting = start_job(setting, prepare(setting));
    counting.let_end({0, 1, 2, 3});
    for (int r = 0; r < 4; ++r) {
      ASSERT_EQ(counting.wait(r), 0) << counting.rank(r).text;
    }
    for (int victim = 0; victim < 4; ++victim) {
      bool is_new = false;
      for (const int64_t n : points(setting, counting.rank(victim))) {
        SCOPED_TRACE(
            setting.text() + ": rank " + std::to_string(victim) +
            " is killed at call " + std::to_string(n));
        const std::string runs = prepare(setting);
        ForkedJob job = start_job(setting, runs, victim, n);
        EXPECT_EQ(job.wait(victim), 128 + SIGKILL);
        for (int r = 0; r < 4; ++r) {
          if (r != victim) {
            expect_survivor(job, r, victim);
          }
        }
        is_new = judge(setting, runs, is_new);
        if (HasFailure()) {
          return;
        }
      }
    }
  }
  report("one rank of 4 over Gloo");
}

TEST_P(Kills, AllRanksAtOnceAtAnyCall) {
  for (const Setting& setting : settings(GetParam())) {
    ForkedJob counting = start_threads(setting, prepare(setting));
    ASSERT_EQ(counting.wait(0), 0) << counting.rank(0).text;
    for (const int64_t n : points(setting, counting.rank(0))) {
      SCOPED_TRACE(setting.text() + ": killed at call " + std::to_string(n));
      const std::string runs = prepare(setting);
      ForkedJob job = start_threads(setting, runs, n);
      EXPECT_EQ(job.wait(0), 128 + SIGKILL) << job.rank(0).text;
      judge(setting, runs, false);
      if (HasFailure()) {
        return;
      }
    }
  }
  report("all 4 ranks, threads of one process");
}

}  // namespace
}  // namespace tessera::testing
