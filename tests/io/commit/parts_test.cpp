// Ranks that agree by files: who fails or dies, and what is there then.
#include <io/commit/parts.h>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <thread>

#include <io/files/error.h>
#include <io/save.h>

#include "io/example.h"
#include "io/files/faulty_file_system.h"

namespace tessera::io_test {
namespace {

using io::Format;
using io::RankPart;

constexpr int64_t kRanks = 4;

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

size_t count_names(const std::string& folder) {
  const std::filesystem::directory_iterator names(folder);
  return static_cast<size_t>(std::distance(begin(names), end(names)));
}

// The ranks of a save one after the other, as their threads would run: a rank
// that fails gives up, the first one sees it. Throws the first error.
void save_by_parts(
    const std::string& path, Format format, int seed, io::FileSystem& files) {
  io::Save save(
      path,
      {.format = format, .ranks = kRanks, .overwrite = true, .files = &files});
  std::vector<std::unique_ptr<RankPart>> parts;
  for (int64_t rank = 1; rank < kRanks; ++rank) {
    parts.push_back(std::make_unique<RankPart>(save.ticket(), rank, files));
  }
  for (int64_t rank = 0; rank + 1 < kRanks; ++rank) {
    io::check_part(save.ticket(), rank + 1, files);
  }
  std::exception_ptr first;
  std::string own;
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    try {
      std::string records =
          write_example_rank(save.ticket(), rank, seed, files);
      if (rank > 0) {
        parts[static_cast<size_t>(rank - 1)]->leave(records);
      } else {
        own = std::move(records);
      }
    } catch (const std::exception&) {
      first = first ? first : std::current_exception();
    }
    if (rank > 0) {
      parts[static_cast<size_t>(rank - 1)]->give_up();
    }
  }
  const auto records = save.wait_for_parts(own);
  if (first) {
    std::rethrow_exception(first);
  }
  save.commit(records);
}

TEST(PartsTest, TheLastRankMayBeAnyAndNothingButTheCheckpointIsLeft) {
  for (const Format format :
       {Format::kTessera, Format::kDcp, Format::kSafetensors}) {
    const TemporaryFolder folder;
    for (int64_t last = 0; last < kRanks; ++last) {
      const std::string path = folder / "step";
      io::Save save(
          path, {.format = format, .ranks = kRanks, .overwrite = true});
      std::atomic<int64_t> written = 0;
      std::vector<std::unique_ptr<RankPart>> parts(kRanks);
      for (int64_t rank = 1; rank < kRanks; ++rank) {
        parts[static_cast<size_t>(rank)] =
            std::make_unique<RankPart>(save.ticket(), rank);
      }
      const auto write = [&](int64_t rank) {
        while (rank == last && written < kRanks - 1) {
          std::this_thread::yield();
        }
        std::string records =
            write_example_rank(save.ticket(), rank, static_cast<int>(last));
        ++written;
        return records;
      };
      std::vector<std::thread> threads;
      for (int64_t rank = 1; rank < kRanks; ++rank) {
        threads.emplace_back([&, rank] {
          RankPart& part = *parts[static_cast<size_t>(rank)];
          EXPECT_FALSE(part.is_save_over());
          part.leave(write(rank));
        });
      }
      const std::vector<std::string> records = save.wait_for_parts(write(0));
      EXPECT_FALSE(parts[1]->is_save_over());
      save.commit(records);
      for (std::thread& thread : threads) {
        thread.join();
      }
      EXPECT_EQ(read_example(path), last);
      EXPECT_EQ(count_names(folder.path()), 1);
    }
  }
}

TEST(PartsTest, ARankThatEndsWithoutRecordsIsNamed) {
  const TemporaryFolder folder;
  auto save =
      std::make_unique<io::Save>(folder / "step", io::SaveOptions{.ranks = 3});
  RankPart first(save->ticket(), 1);
  first.leave(write_example_rank(save->ticket(), 1, 1));
  { const RankPart second(save->ticket(), 2); }
  EXPECT_NE(
      message_of([&] {
        save->wait_for_parts("");
      }).find("rank 2 has not written its part"),
      std::string::npos);
  EXPECT_FALSE(first.is_save_over());
  save.reset();
  EXPECT_TRUE(first.is_save_over());
  EXPECT_EQ(count_names(folder.path()), 0);
}

TEST(PartsTest, AProcessThatIsKilledIsSeen) {
  const TemporaryFolder folder;
  io::Save save(folder / "step", {.ranks = 2});
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const RankPart part(save.ticket(), 1);
    static_cast<void>(!::write(ready[1], "x", 1));
    ::pause();
    ::_exit(0);
  }
  char byte;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  std::thread killer([child] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ::kill(child, SIGKILL);
  });
  EXPECT_NE(
      message_of([&] { save.wait_for_parts(""); }).find("rank 1 has not"),
      std::string::npos);
  killer.join();
  ::waitpid(child, nullptr, 0);
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST(PartsTest, WaitingForARankCanBeGivenUp) {
  const TemporaryFolder folder;
  io::Save save(folder / "step", {.ranks = 2});
  RankPart part(save.ticket(), 1);
  std::atomic<bool> stops = false;
  std::thread stopper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    stops = true;
  });
  EXPECT_NE(
      message_of([&] {
        save.wait_for_parts("own", stops);
      }).find("rank_00001.part: its rank is still writing"),
      std::string::npos);
  stopper.join();
  part.leave("records");
  EXPECT_EQ(save.wait_for_parts("own", stops).size(), 2) << "it need not wait";
}

// A loader of data forks workers while a save is under way: they have the
// descriptors, and must not hold the locks.
TEST(PartsTest, AForkedChildDoesNotHoldTheSaveUp) {
  const TemporaryFolder folder;
  auto save =
      std::make_unique<io::Save>(folder / "step", io::SaveOptions{.ranks = 2});
  RankPart part(save->ticket(), 1);
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  part.leave("records");
  EXPECT_EQ(
      save->wait_for_parts("own"),
      (std::vector<std::string>{"own", "records"}));
  save.reset();
  EXPECT_TRUE(part.is_save_over());
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST(PartsTest, APartThatIsNotThereOrNotLockedIsAnErrorAtOnce) {
  const TemporaryFolder folder;
  const io::Save save(folder / "step", {.ranks = 3});
  EXPECT_NE(
      message_of([&] {
        io::check_part(save.ticket(), 1);
      }).find("must write into one folder"),
      std::string::npos);
  RankPart part(save.ticket(), 1);
  EXPECT_EQ(message_of([&] { io::check_part(save.ticket(), 1); }), "no error");
  part.give_up();
  EXPECT_NE(
      message_of([&] {
        io::check_part(save.ticket(), 1);
      }).find("whose locks (flock) all ranks see: use save()"),
      std::string::npos);
}

TEST(PartsTest, ACrashAtEveryCallLeavesTheOldOrTheNewCheckpoint) {
  const TemporaryFolder folder;
  const std::string path = folder / "step";
  FaultyFileSystem counted;
  save_by_parts(path, Format::kTessera, 1, counted);
  int64_t old_ones = 0;
  for (int64_t call = 1;; ++call) {
    FaultyFileSystem files;
    files.crash_at(call);
    try {
      save_by_parts(path, Format::kTessera, 2, files);
    } catch (const Crash&) {
    }
    const int seed = read_example(path);
    EXPECT_TRUE(seed == 1 || seed == 2) << "call " << call;
    old_ones += seed == 1 ? 1 : 0;
    if (files.calls() < call) {
      break;
    }
    save_by_parts(path, Format::kTessera, 1, io::system_files());
    EXPECT_EQ(count_names(folder.path()), 1) << "call " << call;
  }
  EXPECT_GT(old_ones, 40);
}

TEST(PartsTest, AnErrorOfEveryCallIsToldAndTheNextSaveWorks) {
  const TemporaryFolder folder;
  const std::string path = folder / "step";
  save_by_parts(path, Format::kTessera, 1, io::system_files());
  for (int64_t call = 1;; ++call) {
    FaultyFileSystem files;
    files.fail_at(call, ENOSPC);
    const std::string message =
        message_of([&] { save_by_parts(path, Format::kTessera, 2, files); });
    const int seed = read_example(path);
    if (files.calls() < call) {
      break;
    }
    // What fails after the rename is the removal of the old checkpoint.
    EXPECT_TRUE(message != "no error" || seed == 2) << "call " << call;
    EXPECT_TRUE(
        message == "no error" || message.find(path) == 0 ||
        message.find(folder.path()) == 0)
        << message;
    save_by_parts(path, Format::kTessera, 1, io::system_files());
    EXPECT_EQ(count_names(folder.path()), 1) << "call " << call;
  }
}

}  // namespace
}  // namespace tessera::io_test
