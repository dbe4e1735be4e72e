// What a CommLog records of a Communicator's own functions.
#include <gtest/gtest.h>
#include <tessera/comm/comm_log.h>
#include <tessera/comm/device_mesh.h>
#include <tessera/comm/world.h>

#include <sstream>
#include <thread>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "comm/expect_error.h"
#include "comm/log/call_cause.h"
#include "harness/ranks.h"

namespace tessera {
namespace {

using harness::run_ranks;

using Lines = std::vector<std::string>;

at::Tensor f32(int64_t count) {
  return at::zeros({count}, at::kFloat);
}

Lines lines_of(const std::vector<CommLogEntry>& entries) {
  Lines lines;
  for (const CommLogEntry& entry : entries) {
    lines.push_back(entry.line());
  }
  return lines;
}

// What one call is recorded as.
template <class F>
std::string line_of(F call) {
  CommLog log;
  call();
  EXPECT_EQ(log.count(), 1);
  return log.count() == 1 ? log.entries()[0].line() : "";
}

TEST(CommLogTest, CountsTheBytesOfEveryCollective) {
  run_ranks(3, [] {
    const Communicator all = init().communicator();
    const int64_t me = all.rank();
    const std::vector<int64_t> counts{5, 2, 1};
    const int64_t own = counts[static_cast<size_t>(me)];
    // 8 elements on 3 ranks: 8 - 8 / 3 = 6.
    EXPECT_EQ(
        line_of([&] { all.all_gather_v(f32(8), f32(own), counts); }),
        "all_gather group {0, 1, 2}, 24 bytes");
    EXPECT_EQ(
        line_of([&] { all.reduce_scatter_v(f32(own), f32(8), counts); }),
        "reduce_scatter group {0, 1, 2}, 24 bytes");
    EXPECT_EQ(
        line_of([&] { all.all_reduce(f32(8)); }),
        "all_reduce group {0, 1, 2}, 48 bytes");
    EXPECT_EQ(
        line_of([&] { all.all_to_all(f32(9), f32(9)); }),
        "all_to_all group {0, 1, 2}, 24 bytes");
    EXPECT_EQ(
        line_of([&] { all.broadcast(f32(7), 1); }),
        "broadcast group {0, 1, 2}, 28 bytes");
    EXPECT_EQ(
        line_of([&] {
          all.scatter_v(f32(own), me == 1 ? f32(8) : at::Tensor(), counts, 1);
        }),
        c10::str(
            "scatter group {0, 1, 2}, ", 4 * (me == 1 ? 6 : own), " bytes"));
    EXPECT_EQ(
        line_of([&] {
          all.gather_v(me == 2 ? f32(8) : at::Tensor(), f32(own), counts, 2);
        }),
        c10::str(
            "gather group {0, 1, 2}, ", 4 * (me == 2 ? 7 : own), " bytes"));
    EXPECT_EQ(
        line_of([&] { all.barrier(); }), "barrier group {0, 1, 2}, 0 bytes");
  });
}

TEST(CommLogTest, CountsWhatDoesNotStayOnTheRankInAnAllToAll) {
  run_ranks(2, [] {
    const Communicator all = init().communicator();
    // Rank 0 keeps 4, sends 1, receives 6; rank 1 sends 6, keeps 2.
    const bool first = all.rank() == 0;
    const std::vector<int64_t> sent =
        first ? std::vector<int64_t>{4, 1} : std::vector<int64_t>{6, 2};
    const std::vector<int64_t> received =
        first ? std::vector<int64_t>{4, 6} : std::vector<int64_t>{1, 2};
    EXPECT_EQ(
        line_of([&] {
          all.all_to_all_v(
              f32(first ? 10 : 3), f32(first ? 5 : 8), received, sent);
        }),
        "all_to_all group {0, 1}, 24 bytes");
  });
}

TEST(CommLogTest, RecordsMessagesGroupsAndAsynchronousCalls) {
  run_ranks(3, [] {
    const Communicator all = init().communicator();
    const int64_t me = all.rank();
    CommLog log;
    Communicator::Work work = all.all_reduce_async(f32(3));
    EXPECT_EQ(log.count(), 1) << "a call counts when it is made";
    work.wait();
    if (me == 0) {
      all.send(f32(3), 2, 7);
    } else if (me == 2) {
      all.recv(f32(3), 0, 7);
    }
    const Communicator pair = all.split(me == 1 ? -1 : 0);
    if (pair.defined()) {
      pair.all_reduce(f32(2));
      EXPECT_EQ(log.entries().back().ranks, (std::vector<int64_t>{0, 2}));
    }
    const std::string middle = me == 0   ? "send group {0, 1, 2}, 12 bytes"
                               : me == 2 ? "recv group {0, 1, 2}, 12 bytes"
                                         : "";
    Lines want{"all_reduce group {0, 1, 2}, 16 bytes"};
    if (!middle.empty()) {
      want.push_back(middle);
    }
    want.emplace_back("split group {0, 1, 2}, 32 bytes");
    if (pair.defined()) {
      want.emplace_back("all_reduce group {0, 2}, 8 bytes");
    }
    EXPECT_EQ(lines_of(log.entries()), want);
  });
}

TEST(CommLogTest, SaysThatTheUserAsked) {
  run_ranks(2, [] {
    CommLog log;
    init().communicator().all_reduce(at::zeros({4}, at::kLong));
    const CommLogEntry entry = log.entries().at(0);
    EXPECT_EQ(entry.cause, "user");
    EXPECT_TRUE(entry.asked);
    EXPECT_FALSE(entry.in_backward);
    EXPECT_EQ(entry.kind, "all_reduce");
    EXPECT_EQ(entry.dtype, at::kLong);
    EXPECT_EQ(entry.bytes, 32);
    EXPECT_EQ(entry.from + entry.to + entry.mesh_dims, "");
    EXPECT_EQ(entry.text, "all_reduce group {0, 1}");
  });
}

TEST(CommLogTest, NestsAndOverlaps) {
  run_ranks(2, [] {
    const Communicator all = init().communicator();
    const auto reduce = [&](int64_t n) { all.all_reduce(f32(n)); };
    reduce(1);
    auto outer = std::make_unique<CommLog>();
    reduce(2);
    CommLog inner;
    reduce(4);
    EXPECT_EQ(outer->bytes(), 8 + 16);
    EXPECT_EQ(inner.bytes(), 16);
    outer.reset();
    reduce(6);
    EXPECT_EQ(inner.count(), 2);
    inner.clear();
    EXPECT_EQ(inner.count(), 0);
    reduce(8);
    EXPECT_EQ(inner.bytes(), 32);
  });
}

TEST(CommLogTest, SeesTheCallsOfOtherThreadsOfItsRankOnly) {
  run_ranks(2, [] {
    const Communicator all = init().communicator();
    CommLog log;
    std::thread([&] { all.all_reduce(f32(4)); }).join();
    EXPECT_EQ(log.count(), 1) << "not those of the other rank";
    std::thread([&, world = init()] {
      if (!harness::on_processes()) {  // whose threads all belong to one rank
        expect_error<c10::ValueError>(
            [] { const CommLog nobodys; }, {"init", "RankGuard guard(world)"});
      }
      const RankGuard guard(world);
      CommLog own;
      all.all_reduce(f32(4));
      EXPECT_EQ(own.count(), 1);
    }).join();
    EXPECT_EQ(log.count(), 2);
  });
}

TEST(CommLogTest, LeavesGroupsOfOneRankOut) {
  CommLog log;
  init().communicator({rank()}).all_reduce(f32(4));
  init().communicator({rank()}).barrier();
  EXPECT_EQ(log.count(), 0);
}

TEST(CommLogTest, DoesNotRecordCallsThatWereRefused) {
  run_ranks(2, [] {
    CommLog log;
    const Communicator all = init().communicator();
    EXPECT_NE(error_of([&] { all.all_gather(f32(3), f32(2)); }), "");
    EXPECT_EQ(log.count(), 0);
  });
}

TEST(CommLogTest, PrintsLinesSumsAndJson) {
  run_ranks(2, [] {
    const Communicator all = init().communicator();
    CommLog log;
    all.broadcast(f32(3), 0);
    all.all_reduce(f32(4));
    EXPECT_EQ(
        to_string(log.entries()[1]),
        "all_reduce group {0, 1}, 16 bytes; user, asked for");
    std::ostringstream out;
    out << log;
    EXPECT_EQ(
        out.str(),
        "broadcast group {0, 1}, 12 bytes; user, asked for\n"
        "all_reduce group {0, 1}, 16 bytes; user, asked for\n"
        "user (asked for): 2 collectives, 28 bytes\n"
        "total: 2 collectives, 28 bytes\n");
    EXPECT_EQ(
        log.by_cause(),
        (std::vector<CommLogSum>{
            {.cause = "user", .asked = true, .count = 2, .bytes = 28}}));
    log.clear();
    all.barrier();
    EXPECT_EQ(
        to_json(log),
        "{\"entries\": [{\"cause\": \"user\", \"asked\": true, "
        "\"in_backward\": false, \"kind\": \"barrier\", \"ranks\": [0, 1], "
        "\"mesh_dims\": \"\", \"from\": \"\", \"to\": \"\", \"dtype\": \"\", "
        "\"bytes\": 0, \"line\": \"barrier group {0, 1}, 0 bytes\"}], "
        "\"by_cause\": [{\"cause\": \"user\", \"asked\": true, \"count\": 1, "
        "\"bytes\": 0}], \"count\": 1, \"bytes\": 0}");
  });
}

TEST(CommLogTest, EscapesTextsInJson) {
  run_ranks(2, [] {
    const Communicator all = init().communicator();
    CommLog log;
    {
      const detail::CallCause cause("a \"b\" \\c\n\x01");
      all.barrier();
    }
    const std::string json = to_json(log);
    const std::string cause = R"("cause": "a \"b\" \\c\u000a\u0001", )";
    EXPECT_NE(json.find("{\"entries\": [{" + cause), std::string::npos) << json;
    EXPECT_NE(json.find("\"by_cause\": [{" + cause), std::string::npos) << json;
  });
}

TEST(CommLogTest, MergesTheLargestOverRanksWithoutRecordingThat) {
  run_ranks(3, [] {
    const Communicator all = init().communicator();
    const int64_t me = all.rank();
    const std::vector<int64_t> counts{5, 2, 1};
    CommLog log;
    all.scatter_v(
        f32(counts[static_cast<size_t>(me)]), me == 2 ? f32(8) : at::Tensor(),
        counts, 2);
    all.all_reduce(f32(3));
    EXPECT_EQ(
        lines_of(log.largest_over(all)),
        (Lines{
            "scatter group {0, 1, 2}, 28 bytes",
            "all_reduce group {0, 1, 2}, 16 bytes"}));
    EXPECT_EQ(log.count(), 2);
    EXPECT_EQ(CommLog().largest_over(all).size(), 0U);
  });
}

TEST(CommLogTest, RefusesToMergeDifferentCallsOnAllRanks) {
  run_ranks(2, [] {
    const Communicator all = init().communicator();
    CommLog log;
    if (all.rank() == 0) {
      all.send(f32(3), 1);
    } else {
      all.recv(f32(3), 0);
    }
    expect_error<c10::ValueError>(
        [&] { static_cast<void>(log.largest_over(all)); },
        {"CommLog::largest_over on group {0, 1}, rank",
         "the ranks recorded different calls", "rank 0 has 1 entries",
         "rank 1 has 1"});
    all.all_reduce(f32(1));  // the group still works
  });
}

}  // namespace
}  // namespace tessera
