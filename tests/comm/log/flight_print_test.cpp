// What a rank prints of its last calls when one fails, and where.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <tessera/comm/flight_recorder.h>
#include <tessera/comm/world.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <ATen/ops/zeros.h>

#include "comm/expect_error.h"

namespace tessera {
namespace {

using Lines = std::vector<std::string>;

// Ranks disagree, so that the group is broken on all.
void mismatch(const Communicator& comm) {
  EXPECT_NE(
      error_of([&] { comm.all_reduce(at::zeros({comm.rank() + 1})); }), "");
}

class FlightPrintTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              c10::str("tessera_flight_", getpid());
    std::filesystem::create_directory(folder_);
  }
  void TearDown() override {
    unsetenv("TESSERA_FLIGHT_RECORDER");
    std::filesystem::remove_all(folder_);
  }

  static void set(const std::string& place) {
    setenv("TESSERA_FLIGHT_RECORDER", place.c_str(), 1);
  }
  std::string path(const std::string& name) const { return folder_ / name; }
  static Lines lines_of(std::istream& in) {
    Lines lines;
    for (std::string line; std::getline(in, line);) {
      lines.push_back(line);
    }
    return lines;
  }
  static Lines lines_in(const std::string& file) {
    std::ifstream in(file);
    return lines_of(in);
  }
  /// Returns what is printed on stderr meanwhile.
  static Lines printed(const std::function<void()>& body) {
    testing::internal::CaptureStderr();
    body();
    std::istringstream in(testing::internal::GetCapturedStderr());
    return lines_of(in);
  }

 private:
  std::filesystem::path folder_;
};

// Two groups of two ranks fail, one after the other.
void fail_twice() {
  run_ranks(2, [] {
    const Communicator comm = init().communicator();
    const Communicator other = init().communicator({1, 0});
    for (int k = 0; k < 100; ++k) {
      comm.barrier();
    }
    mismatch(comm);
    EXPECT_NE(error_of([&] { comm.barrier(); }), "");
    mismatch(other);
  });
}

TEST_F(FlightPrintTest, PrintsNothingUnlessAsked) {
  unsetenv("TESSERA_FLIGHT_RECORDER");
  EXPECT_EQ(printed(fail_twice), Lines());
  for (const char* off : {"", "0"}) {
    set(off);
    EXPECT_EQ(printed(fail_twice), Lines());
  }
  set("stderr");
  EXPECT_EQ(
      printed([] { run_ranks(2, [] { init().communicator().barrier(); }); }),
      Lines())
      << "all went well";
}

TEST_F(FlightPrintTest, PrintsWholeRecordsOncePerFailedGroup) {
  for (const char* place : {"1", "stderr"}) {
    set(place);
    const Lines lines = printed(fail_twice);
    int records = 0;
    size_t at = 0;
    while (at < lines.size()) {
      const std::string prefix = lines[at].substr(0, lines[at].find(':') + 1);
      expect_parts(lines[at], {prefix + " flight record, 10", " calls, times"});
      const int64_t calls =
          lines[at].find(" 101 of 101") != lines[at].npos ? 101 : 102;
      for (int64_t k = 0; k < calls; ++k) {
        ASSERT_LT(++at, lines.size());
        const bool marked = k >= 100;
        EXPECT_EQ(
            lines[at].find(c10::str(
                prefix, marked ? " > call " : "   call ", k % 101,
                " on group")),
            0U)
            << lines[at];
      }
      ++at;
      ++records;
    }
    EXPECT_TRUE(records == 4 || records == 2) << "ranks may be processes";
  }
}

TEST_F(FlightPrintTest, ARankThatThrowsPrintsToo) {
  set("stderr");
  const Lines lines = printed([] {
    EXPECT_NE(
        error_of([] {
          run_ranks(2, [] {
            const Communicator comm = init().communicator();
            comm.barrier();
            TORCH_CHECK(rank() == 0, "planted");
            comm.barrier();
          });
        }),
        "");
  });
  int64_t headers = 0;
  for (const std::string& line : lines) {
    if (line.find("flight record") != std::string::npos) {
      ++headers;
      expect_parts(
          line,
          {line.find("rank 1:") == 0 ? "1 of 1 calls, times since 2"
                                     : "2 of 2 calls, times since 2",
           line.find("rank 1:") == 0 ? "an exception ended this rank: planted"
                                     : "rank 1 failed: planted"});
    }
  }
  EXPECT_TRUE(headers == 2 || headers == 1);
}

TEST_F(FlightPrintTest, WritesAFileOfItsOwnPerRank) {
  set(path("record"));
  std::ofstream(path("precious")) << "kept\n";
  std::filesystem::create_symlink(path("precious"), path("record.rank0"));
  std::ofstream(path("record.rank1")) << "an earlier record\n";
  std::filesystem::permissions(
      path("record.rank1"), std::filesystem::perms(0666));
  EXPECT_EQ(
      printed([&] {
        run_ranks(2, [&] {
          mismatch(init().communicator());
          const std::string file = path(c10::str("record.rank", rank()));
          struct stat status {};
          ASSERT_EQ(lstat(file.c_str(), &status), 0);
          EXPECT_EQ(status.st_mode, static_cast<mode_t>(S_IFREG | 0600));
          const Lines lines = lines_in(file);
          ASSERT_EQ(lines.size(), 2U);
          expect_parts(
              lines[0], {c10::str("rank ", rank(), ": flight record, 1 of 1")});
          expect_parts(lines[1], {c10::str("rank ", rank(), ": > call 0")});
        });
      }),
      Lines());
  EXPECT_EQ(lines_in(path("precious")), Lines{"kept"});
}

TEST_F(FlightPrintTest, WritesJsonWhereTheNameSaysSo) {
  set(path("record.json"));
  run_ranks(2, [&] {
    init().communicator().barrier();
    mismatch(init().communicator());
    const Lines lines = lines_in(path(c10::str("record.json.rank", rank())));
    const auto record = flight_record();
    ASSERT_EQ(lines.size(), 2U);
    EXPECT_EQ(lines[0], to_json(record[0]));
    EXPECT_EQ(lines[1], to_json(record[1]));
  });
}

TEST_F(FlightPrintTest, SaysWhereItCannotWriteAndKeepsTheError) {
  set(path("missing/record"));
  const Lines lines =
      printed([] { run_ranks(2, [] { mismatch(init().communicator()); }); });
  ASSERT_FALSE(lines.empty());
  for (const std::string& line : lines) {
    expect_parts(
        line, {"TESSERA_FLIGHT_RECORDER: cannot write ", "missing/record.rank",
               "No such file or directory"});
  }
}

}  // namespace
}  // namespace tessera
