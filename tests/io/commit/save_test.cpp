// A save by 4 ranks, and everything that can go wrong with it.
#include <io/save.h>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <set>

#include <io/files/error.h>
#include <io/steps.h>

#include "io/example.h"
#include "io/files/faulty_file_system.h"

namespace tessera::io_test {
namespace {

using io::ErrorKind;
using io::Format;

const std::vector<Format> kFormats = {
    Format::kTessera, Format::kDcp, Format::kSafetensors};

TEST(SaveTest, FourRanksSaveWhatIsReadBackInEveryFormat) {
  for (const Format format : kFormats) {
    const TemporaryFolder folder;
    save_example(folder / "step", format, 5);
    EXPECT_EQ(read_example(folder / "step"), 5);
    EXPECT_EQ(io::open_checkpoint(folder / "step")->format(), format);
    EXPECT_EQ(names_in(folder.path()), std::set<std::string>{"step"});
  }
}

TEST(SaveTest, OverwritingIsAskedFor) {
  const TemporaryFolder folder;
  save_example(folder / "step", Format::kTessera, 1);
  EXPECT_NE(
      message_of([&] {
        save_example(folder / "step", Format::kDcp, 2);
      }).find("is there already"),
      std::string::npos);
  EXPECT_EQ(read_example(folder / "step"), 1);
  save_example(folder / "step", Format::kDcp, 2, true);
  EXPECT_EQ(read_example(folder / "step"), 2);
  EXPECT_EQ(names_in(folder.path()), std::set<std::string>{"step"});
}

TEST(SaveTest, FilesOfTheUserAreNeverRemoved) {
  const TemporaryFolder folder;
  save_example(folder / "step", Format::kTessera, 1);
  write_bytes(folder / "step/notes.txt", "mine");
  EXPECT_NE(
      message_of([&] {
        save_example(folder / "step", Format::kTessera, 2, true);
      }).find("holds 'notes.txt'"),
      std::string::npos);
  EXPECT_EQ(read_example(folder / "step"), 1);
  EXPECT_EQ(read_bytes(folder / "step/notes.txt"), "mine");
}

TEST(SaveTest, AnAbandonedSaveLeavesNothing) {
  const TemporaryFolder folder;
  {
    io::Save save(folder / "step", {.ranks = 4});
    write_example_rank(save.ticket(), 0, 1);
    EXPECT_EQ(names_in(folder.path()).size(), 1);
  }
  EXPECT_TRUE(names_in(folder.path()).empty());
}

TEST(SaveTest, TwoSavesOfOnePathExcludeEachOther) {
  const TemporaryFolder folder;
  const io::Save first(folder / "step", {});
  EXPECT_NE(
      message_of([&] { io::Save(folder / "step", {}); }).find("is under way"),
      std::string::npos);
}

TEST(SaveTest, RecordsOfOtherSavesOrRanksAreRefused) {
  const TemporaryFolder folder;
  io::Save save(folder / "step", {.ranks = 2});
  io::Save other(folder / "other", {.ranks = 2});
  const auto write = [](const io::Save& to, int64_t rank) {
    return io::open_rank_writer(to.ticket(), rank, {})->finish();
  };
  const std::string mine = write(save, 0), foreign = write(other, 1);
  EXPECT_NE(
      message_of([&] {
        save.commit({mine, foreign});
      }).find("another save"),
      std::string::npos);
  EXPECT_NE(
      message_of([&] {
        save.commit({mine, mine});
      }).find("those of rank 0"),
      std::string::npos);
  EXPECT_NE(
      message_of([&] { save.commit({mine}); }).find("records of 1 ranks"),
      std::string::npos);
  EXPECT_NE(
      message_of([&] {
        save.commit({mine, "{"});
      }).find("no records"),
      std::string::npos);
}

TEST(SaveTest, TensorsThatAreNotCoveredAreRefused) {
  const TemporaryFolder folder;
  const auto save_parts = [&](std::vector<io::Box> boxes) {
    io::Save save(folder / "step", {.ranks = 1});
    io::RankContents contents;
    for (const io::Box& box : boxes) {
      contents.chunks.push_back({"w", {}, io::Dtype::kUInt8, {4}, box});
    }
    const auto writer = io::open_rank_writer(save.ticket(), 0, contents);
    for (size_t i = 0; i < boxes.size(); ++i) {
      writer->append(i, "abcd", static_cast<size_t>(boxes[i].sizes[0]));
    }
    save.commit({writer->finish()});
  };
  EXPECT_NE(
      message_of([&] {
        save_parts({{{0}, {3}}});
      }).find("do not cover"),
      std::string::npos);
  EXPECT_NE(
      message_of([&] {
        save_parts({{{0}, {3}}, {{2}, {2}}});
      })
          .find("(offsets [0], sizes [3]) and 1 (offsets [2], sizes [2]) "
                "overlap"),
      std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder / "step"));
}

TEST(SaveTest, WhatIsNestedIsReadAgainOrRefused) {
  for (const Format format :
       {Format::kTessera, Format::kDcp, Format::kSafetensors}) {
    const TemporaryFolder folder;
    const auto save = [&](const io::Path& path) {
      io::Save begun(folder / "step", {.format = format});
      io::RankContents contents;
      contents.chunks.push_back(
          {"w", path, io::Dtype::kUInt8, {4}, {{0}, {4}}});
      const auto writer = io::open_rank_writer(begun.ticket(), 0, contents);
      writer->append(0, "abcd", 4);
      begun.commit({writer->finish()});
      const auto reader = io::open_checkpoint(folder / "step");
      EXPECT_EQ(reader->entries().at(0).path, path);
      std::filesystem::remove_all(folder / "step");
    };
    io::Path path(63, io::PathPart("k"));
    path.emplace_back("");  // a key as any other
    save(path);
    path.emplace_back(int64_t{0});
    EXPECT_NE(
        message_of([&] { save(path); }).find("'w' is nested 65 deep"),
        std::string::npos);
    EXPECT_TRUE(names_in(folder.path()).empty());
  }
}

TEST(SaveTest, AWriterWantsAllBytesOfItsChunks) {
  const TemporaryFolder folder;
  const io::Save save(folder / "step", {.ranks = 1});
  io::RankContents contents;
  contents.chunks.push_back({"w", {}, io::Dtype::kUInt8, {4}, {{0}, {4}}});
  const auto writer = io::open_rank_writer(save.ticket(), 0, contents);
  writer->append(0, "ab", 2);
  EXPECT_NE(
      message_of([&] { writer->finish(); }).find("2 of 4 bytes of 'w'"),
      std::string::npos);
  EXPECT_NE(
      message_of([&] {
        writer->append(0, "abc", 3);
      }).find("which has 4, 2 written"),
      std::string::npos);
  EXPECT_NE(
      message_of([&] { writer->append(1, "", 0); }).find("not declared"),
      std::string::npos);
}

// Runs a save over an old checkpoint with a fault at call n, for all n; `arm`
// sets the fault, and `check` looks at the outcome. Returns how many calls a
// save without faults makes.
int64_t fault_at_every_call(
    Format format, bool has_exchange, const std::string& path,
    const std::function<void(FaultyFileSystem&, int64_t)>& arm,
    const std::function<void(int64_t, const std::string&)>& check) {
  for (int64_t n = 1;; ++n) {
    std::filesystem::remove_all(path);
    std::filesystem::create_directory(path);
    save_example(path + "/step", Format::kTessera, 1);
    FaultyFileSystem files;
    if (!has_exchange) {
      files.refuse_exchange();
    }
    arm(files, n);
    std::string error;
    try {
      save_example(path + "/step", format, 2, true, files);
    } catch (const std::exception& caught) {
      error = caught.what();
    }
    if (files.calls() < n) {
      return files.calls();
    }
    check(n, error);
  }
}

TEST(SaveTest, ACrashAtAnyCallLeavesTheOldOrTheNewCheckpoint) {
  for (const Format format : kFormats) {
    for (const bool has_exchange : {true, false}) {
      const TemporaryFolder folder;
      int old_ones = 0, new_ones = 0;
      const int64_t calls = fault_at_every_call(
          format, has_exchange, folder / "runs",
          [](FaultyFileSystem& files, int64_t n) { files.crash_at(n); },
          [&](int64_t n, const std::string&) {
            const int seed = read_example(folder / "runs/step");
            ASSERT_TRUE(seed == 1 || seed == 2) << "call " << n;
            // Once new, it stays new.
            ASSERT_GE(seed, new_ones > 0 ? 2 : 1) << "call " << n;
            (seed == 1 ? old_ones : new_ones)++;
            // The next save cleans up whatever was left.
            save_example(folder / "runs/step", Format::kTessera, 3, true);
            ASSERT_EQ(read_example(folder / "runs/step"), 3);
            ASSERT_EQ(names_in(folder / "runs"), std::set<std::string>{"step"});
          });
      EXPECT_GT(old_ones, 20);
      EXPECT_GT(new_ones, 3);
      EXPECT_EQ(calls, old_ones + new_ones);
    }
  }
}

TEST(SaveTest, ACallThatFailsIsAnErrorThatNamesAFile) {
  for (const int error : {EIO, ENOSPC, EDQUOT}) {
    const TemporaryFolder folder;
    fault_at_every_call(
        Format::kTessera, true, folder / "runs",
        [&](FaultyFileSystem& files, int64_t n) { files.fail_at(n, error); },
        [&](int64_t n, const std::string& message) {
          const int seed = read_example(folder / "runs/step");
          // Only cleaning up may fail without an error: the save is done.
          ASSERT_TRUE(seed == 2 || !message.empty()) << "call " << n;
          if (!message.empty()) {
            EXPECT_NE(message.find(folder / "runs"), std::string::npos);
            EXPECT_NE(message.find("(E"), std::string::npos) << message;
          }
        });
  }
}

TEST(SaveTest, InterruptedAndShortCallsGoOn) {
  for (const Format format : kFormats) {
    for (const bool is_short : {true, false}) {
      const TemporaryFolder folder;
      fault_at_every_call(
          format, true, folder / "runs",
          [&](FaultyFileSystem& files, int64_t n) {
            is_short ? files.shorten_at(n) : files.interrupt_at(n);
          },
          [&](int64_t n, const std::string& message) {
            ASSERT_EQ(message, "") << "call " << n;
            ASSERT_EQ(read_example(folder / "runs/step"), 2) << "call " << n;
          });
    }
  }
}

TEST(SaveTest, ReadsThatFailAreErrorsThatNameAFile) {
  for (const Format format : kFormats) {
    const TemporaryFolder folder;
    save_example(folder / "step", format, 4);
    for (int64_t n = 1;; ++n) {
      FaultyFileSystem failing, interrupted;
      failing.fail_at(n, EIO);
      interrupted.interrupt_at(n);
      EXPECT_EQ(read_example(folder / "step", interrupted), 4);
      if (interrupted.calls() < n) {
        break;
      }
      const std::string message =
          message_of([&] { read_example(folder / "step", failing); });
      EXPECT_NE(message.find(folder.path()), std::string::npos) << message;
      EXPECT_NE(message.find("(EIO)"), std::string::npos) << message;
    }
  }
}

TEST(SaveTest, OneSafetensorsFileIsReplacedAtOnce) {
  const TemporaryFolder folder;
  const std::string path = folder / "model.safetensors";
  const auto save_one = [&](const std::string& text, io::FileSystem& files) {
    io::Save save(
        path,
        {.format = Format::kSafetensors, .overwrite = true, .files = &files});
    io::RankContents contents;
    contents.chunks.push_back({"w", {}, io::Dtype::kUInt8, {4}, {{0}, {4}}});
    const auto writer = io::open_rank_writer(save.ticket(), 0, contents, files);
    writer->append(0, text.data(), 4);
    save.commit({writer->finish()});
  };
  const auto read_one = [&] {
    const auto reader = io::open_checkpoint(path);
    std::string text(4, '\0');
    reader->read(*reader->find("w"), {{0}, {4}}, {text.data()});
    return text;
  };
  save_one("abcd", io::system_files());
  for (int64_t n = 1;; ++n) {
    FaultyFileSystem files;
    files.crash_at(n);
    try {
      save_one("wxyz", files);
    } catch (const Crash&) {
    }
    const std::string text = read_one();
    EXPECT_TRUE(text == "abcd" || text == "wxyz");
    if (files.calls() < n) {
      EXPECT_EQ(text, "wxyz");
      break;
    }
    save_one("abcd", io::system_files());
  }
}

TEST(StepsTest, TheLatestIsWhatWasSaidLast) {
  const TemporaryFolder folder;
  EXPECT_EQ(io::find_latest(folder.path()), std::nullopt);
  for (const int64_t step : {100, 200, 300}) {
    save_example(
        folder / io::step_name(step), Format::kTessera, static_cast<int>(step));
  }
  EXPECT_EQ(io::step_name(100), "step_000000000100");
  EXPECT_EQ(io::find_latest(folder.path()), 300);  // nothing said: the highest
  io::set_latest(folder.path(), 200);
  EXPECT_EQ(io::find_latest(folder.path()), 200);
  EXPECT_EQ(read_bytes(folder / "latest"), "step_000000000200\n");
  EXPECT_NE(
      message_of([&] {
        io::set_latest(folder.path(), 400);
      }).find("no checkpoint"),
      std::string::npos);
  std::filesystem::remove_all(folder / "step_000000000200");
  EXPECT_EQ(io::find_latest(folder.path()), 300);  // it points to nothing
}

TEST(StepsTest, OldStepsAreRemovedButNeverTheLatest) {
  const TemporaryFolder folder;
  for (int64_t step = 1; step <= 5; ++step) {
    save_example(
        folder / io::step_name(step), Format::kTessera, static_cast<int>(step));
  }
  io::set_latest(folder.path(), 2);
  EXPECT_EQ(
      io::remove_old_steps(folder.path(), 2), (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(io::list_steps(folder.path()), (std::vector<int64_t>{2, 4, 5}));
  EXPECT_NE(
      message_of([&] {
        io::remove_old_steps(folder.path(), 0);
      }).find("keep one step or more"),
      std::string::npos);
}

TEST(StepsTest, ACrashInRetentionLeavesWholeSteps) {
  for (int64_t n = 1;; ++n) {
    const TemporaryFolder folder;
    for (int64_t step = 1; step <= 3; ++step) {
      save_example(
          folder / io::step_name(step), Format::kTessera,
          static_cast<int>(step));
    }
    FaultyFileSystem files;
    files.crash_at(n);
    try {
      io::set_latest(folder.path(), 3, files);
      io::remove_old_steps(folder.path(), 1, files);
    } catch (const Crash&) {
    }
    for (const int64_t step : io::list_steps(folder.path())) {
      EXPECT_EQ(read_example(folder / io::step_name(step)), step);
    }
    EXPECT_EQ(io::find_latest(folder.path()), 3);
    io::remove_old_steps(folder.path(), 1);
    io::set_latest(folder.path(), 3);
    EXPECT_EQ(
        names_in(folder.path()),
        (std::set<std::string>{"latest", "step_000000000003"}));
    if (files.calls() < n) {
      break;
    }
  }
}

}  // namespace
}  // namespace tessera::io_test
