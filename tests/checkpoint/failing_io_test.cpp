// Calls of the file system that fail, or do less than asked for, on one rank of
// 4 that save or load: each of them with TESSERA_LONG=1, else some.
#include <gtest/gtest.h>
#include <tessera/checkpoint/checkpoint.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <c10/util/Exception.h>

#include <checkpoint/generation.h>
#include <checkpoint/scratch_folder.h>
#include <io/files/faulty_file_system.h>

namespace tessera::testing {
namespace {

using checkpoint::Format;
using io_test::FaultyFileSystem;

// What each of 4 ranks came to: its error, "" for none.
using Errors = std::vector<std::string>;

// Keeps the warnings of a thread, in the place of printing them.
class Warnings : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override {
    text += warning.msg() + "\n";
  }
  std::string text;
};

// Runs a body on 4 ranks, of which one has these files; returns what they threw
// and the warnings of the first one.
Errors run_with(
    FaultyFileSystem& files, int64_t victim, const std::function<void()>& body,
    std::string* warnings = nullptr) {
  files.count_if([victim] { return rank() == victim; });
  const io::SystemFilesReplaced replaced(files);
  Errors errors(4);
  run_ranks(4, [&] {
    Warnings kept;
    const c10::WarningUtils::WarningHandlerGuard guard(&kept);
    errors[static_cast<size_t>(rank())] = error_of(body);
    if (rank() == 0 && warnings != nullptr) {
      *warnings = kept.text;
    }
  });
  return errors;
}

int64_t generation_at(const std::string& path) {
  int64_t found = 0;
  run_ranks(4, [&] {
    const int64_t number = load_generation(path);
    if (rank() == 0) {
      found = number;
    }
  });
  return found;
}

void expect_parts(
    const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    EXPECT_PRED_FORMAT2(::testing::IsSubstring, part, text);
  }
}

std::string in_brackets(int error) {
  return std::string("(") + ::strerrorname_np(error) + ")";
}

// All ranks say the same: which rank failed, at which file, and why.
void expect_named(
    const Errors& errors, int64_t victim, const std::string& folder,
    int error) {
  EXPECT_EQ(errors, Errors(4, errors[0]));
  expect_parts(
      errors[0], {"on rank " + std::to_string(victim) + ": ",
                  "\"): " + folder,  // behind the call: the file
                  in_brackets(error)});
}

// The next call to let fail.
int64_t step(Format format) {
  const char* value = std::getenv("TESSERA_LONG");
  const bool is_long = value != nullptr && *value != '\0' && *value != '0';
  return is_long ? 1 : format == Format::kTessera ? 4 : 11;
}

class FailingIo : public ::testing::TestWithParam<Format> {
 protected:
  void SetUp() override {
    run_ranks(4, [&] {
      save_generation(1, folder_ / "old", {.format = GetParam()});
    });
  }

  // A folder with the old checkpoint as "a".
  std::string prepare() {
    const std::string runs = folder_ / "runs";
    std::filesystem::remove_all(runs);
    std::filesystem::create_directory(runs);
    std::filesystem::copy(folder_ / "old", runs + "/a");
    return runs;
  }

  Errors save(
      FaultyFileSystem& files, int64_t victim, const std::string& runs,
      std::string* warnings = nullptr) {
    const auto body = [&] {
      save_generation(
          2, runs + "/a", {.format = GetParam(), .overwrite = true});
    };
    return run_with(files, victim, body, warnings);
  }

  // A save of which call n of a rank fails; false where there is no such call.
  bool fails_well(int64_t n, int64_t victim, int error) {
    const std::string runs = prepare();
    FaultyFileSystem files;
    files.fail_at(n, error);
    std::string warnings;
    const Errors errors = save(files, victim, runs, &warnings);
    if (files.calls() < n) {
      return false;
    }
    const int64_t found = generation_at(runs + "/a");
    if (errors[0].empty()) {
      // The new checkpoint is there; only the old one could not be removed.
      EXPECT_EQ(found, 2);
      EXPECT_EQ(errors, Errors(4));
      expect_parts(warnings, {runs + "/", in_brackets(error)});
    } else {
      expect_named(errors, victim, runs, error);
      // Behind the rename, whether that is on the disk is not known.
      const bool is_last_sync =
          errors[0].find(runs + ": sync the folder") != std::string::npos;
      EXPECT_TRUE(found == 1 || (found == 2 && is_last_sync)) << errors[0];
    }
    return true;
  }

  ScratchFolder folder_;
};

INSTANTIATE_TEST_SUITE_P(
    Formats, FailingIo,
    ::testing::Values(Format::kTessera, Format::kDcp, Format::kSafetensors),
    [](const auto& test) { return checkpoint::to_string(test.param); });

TEST_P(FailingIo, ASaveThatFailsOnOneRankIsAnErrorOnAllAndChangesNothing) {
  for (const int64_t victim : {0, 1}) {
    for (const int error : {EIO, ENOSPC}) {
      int64_t n = 1;
      while (!HasFailure()) {
        SCOPED_TRACE(
            in_brackets(error) + " at call " + std::to_string(n) + " of rank " +
            std::to_string(victim));
        if (!fails_well(n, victim, error)) {
          break;
        }
        n += step(GetParam());
      }
      EXPECT_GT(n, victim == 0 ? 40 : 3);
    }
  }
}

TEST_P(FailingIo, ShortAndInterruptedCallsOfASaveGoOn) {
  for (const int64_t victim : {0, 1}) {
    for (const bool is_short : {false, true}) {
      for (int64_t n = 1;; n += step(GetParam())) {
        SCOPED_TRACE(
            std::string(is_short ? "short" : "interrupted") + " call " +
            std::to_string(n) + " of rank " + std::to_string(victim));
        const std::string runs = prepare();
        FaultyFileSystem files;
        is_short ? files.shorten_at(n) : files.interrupt_at(n);
        EXPECT_EQ(save(files, victim, runs), Errors(4));
        EXPECT_EQ(generation_at(runs + "/a"), 2);
        if (HasFailure() || files.calls() < n) {
          break;
        }
      }
    }
  }
}

TEST_P(FailingIo, ALoadThatFailsOnOneRankIsAnErrorOnAll) {
  for (const int64_t victim : {0, 3}) {
    for (int64_t n = 1;; n += step(GetParam())) {
      SCOPED_TRACE(
          "call " + std::to_string(n) + " of rank " + std::to_string(victim));
      const std::string path = folder_ / "old";
      const auto load = [&](FaultyFileSystem& files) {
        return run_with(
            files, victim, [&] { TORCH_CHECK(load_generation(path) == 1); });
      };
      FaultyFileSystem failing, interrupted, shortened;
      failing.fail_at(n, EIO);
      interrupted.interrupt_at(n);
      shortened.shorten_at(n);
      EXPECT_EQ(load(interrupted), Errors(4));
      EXPECT_EQ(load(shortened), Errors(4));
      if (HasFailure() || interrupted.calls() < n) {
        break;
      }
      expect_named(load(failing), victim, folder_.path(), EIO);
    }
  }
}

}  // namespace
}  // namespace tessera::testing
