// What a rank keeps of its last calls.
#include <gtest/gtest.h>
#include <tessera/comm/flight_recorder.h>
#include <tessera/comm/world.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <thread>

#include <ATen/ops/zeros.h>

#include "comm/expect_error.h"

namespace tessera {
namespace {

using Lines = std::vector<std::string>;
using std::chrono::milliseconds;

at::Tensor zero_floats(int64_t count) {
  return at::zeros({count});
}

Lines calls_of(const std::vector<FlightEntry>& entries) {
  Lines calls;
  for (const FlightEntry& entry : entries) {
    calls.push_back(entry.call);
  }
  return calls;
}

// Ranks disagree, so that the group is broken on all.
void mismatch(const Communicator& comm) {
  EXPECT_NE(
      error_of([&] { comm.all_reduce(zero_floats(comm.rank() + 1)); }), "");
}

TEST(FlightRecordTest, KeepsEveryKindOfCall) {
  run_ranks(2, [] {
    const Communicator comm = init().communicator();
    const int64_t me = comm.rank();
    comm.all_gather_v(zero_floats(5), zero_floats(me == 0 ? 3 : 2), {3, 2});
    comm.reduce_scatter(zero_floats(2), zero_floats(4), ReduceOp::kMax);
    comm.all_reduce(at::zeros({1024}, at::kLong));
    comm.all_to_all(zero_floats(6), zero_floats(6));
    comm.broadcast(zero_floats(7), 1);
    comm.scatter(zero_floats(2), me == 0 ? zero_floats(4) : at::Tensor(), 0);
    comm.gather(me == 1 ? zero_floats(4) : at::Tensor(), zero_floats(2), 1);
    me == 0 ? comm.send(zero_floats(8), 1, 9) : comm.recv(zero_floats(8), 0, 9);
    comm.barrier();
    static_cast<void>(comm.split(0));
    const auto record = flight_record();
    EXPECT_EQ(
        calls_of(record),
        (Lines{
            me == 0 ? "all_gather(f32[3], counts 3 2)"
                    : "all_gather(f32[2], counts 3 2)",
            "reduce_scatter(f32[4], counts 2 2, max)",
            "all_reduce(i64[1024], sum)",
            "all_to_all(f32[6], input counts 3 3, output counts 3 3)",
            "broadcast(f32[7], root 1)",
            me == 0 ? "scatter(f32[4], counts 2 2, root 0)"
                    : "scatter(f32[2], counts 2 2, root 0)",
            "gather(f32[2], counts 2 2, root 1)",
            me == 0 ? "send(f32[8], to 1, tag 9)"
                    : "recv(f32[8], from 0, tag 9)",
            "barrier()", "split()"}));
    for (size_t i = 0; i < record.size(); ++i) {
      const auto number = static_cast<int64_t>(i);
      EXPECT_EQ(record[i].number, number);
      EXPECT_EQ(record[i].sequence, i < 7 ? number : i == 7 ? -1 : number - 1);
      EXPECT_EQ(record[i].state, FlightState::kCompleted);
      EXPECT_EQ(record[i].rank, me);
      EXPECT_EQ(record[i].ranks, (std::vector<int64_t>{0, 1}));
      EXPECT_EQ(record[i].cause, "user");
      EXPECT_TRUE(record[i].took.has_value());
      EXPECT_EQ(record[i].call.find(record[i].kind + "("), 0U);
    }
  });
}

TEST(FlightRecordTest, KeepsTheNewest256) {
  run_ranks(2, [] {
    const Communicator comm = init().communicator();
    for (int64_t k = 0; k < 256; ++k) {
      comm.all_reduce(zero_floats(k));
    }
    EXPECT_EQ(flight_record().front().call, "all_reduce(f32[0], sum)");
    for (int64_t k = 256; k < 600; ++k) {
      comm.all_reduce(zero_floats(k));
    }
    const auto record = flight_record();
    ASSERT_EQ(record.size(), 256U);
    auto before = std::chrono::microseconds(0);
    for (size_t i = 0; i < record.size(); ++i) {
      const auto k = static_cast<int64_t>(i) + 600 - 256;
      EXPECT_EQ(record[i].number, k);
      EXPECT_EQ(record[i].sequence, k);
      EXPECT_EQ(record[i].call, c10::str("all_reduce(f32[", k, "], sum)"));
      EXPECT_GE(record[i].started, before);
      before = record[i].started;
    }
  });
}

TEST(FlightRecordTest, ACallThat256OthersFollowedEndsUnseen) {
  run_ranks(2, [] {
    const Communicator comm = init().communicator();
    Communicator::Work first = comm.all_reduce_async(zero_floats(1));
    for (int64_t k = 0; k < 256; ++k) {
      comm.barrier();
    }
    first.wait();
    EXPECT_EQ(flight_record().front().call, "barrier()");
    EXPECT_EQ(flight_record().size(), 256U);
  });
}

TEST(FlightRecordTest, OfManyCountsTheFirst8AreKept) {
  run_ranks(9, [] {
    const Communicator comm = init().communicator();
    comm.all_gather_v(
        zero_floats(45), zero_floats(comm.rank() + 1),
        {1, 2, 3, 4, 5, 6, 7, 8, 9});
    comm.all_to_all(zero_floats(18), zero_floats(18));
    const auto record = flight_record();
    EXPECT_EQ(
        record[0].call, c10::str(
                            "all_gather(f32[", comm.rank() + 1,
                            "], counts 1 2 3 4 5 6 7 8 ...)"));
    EXPECT_EQ(
        record[1].call,
        "all_to_all(f32[18], input counts 2 2 2 2 2 2 2 2 ..., output counts 2 "
        "2 2 2 2 2 2 2 ...)");
  });
}

TEST(FlightRecordTest, GroupsCountTheirOwnCollectives) {
  run_ranks(3, [] {
    const Communicator all = init().communicator();
    all.barrier();
    const Communicator pair = all.split(rank() == 1 ? -1 : 0);
    if (pair.defined()) {
      pair.barrier();
      init().communicator({0, 2}).barrier();  // another handle to that group
    }
    init().communicator({rank()}).barrier();  // alone: nothing to record
    all.barrier();
    std::vector<std::pair<size_t, int64_t>> seen;
    for (const FlightEntry& entry : flight_record()) {
      seen.emplace_back(entry.ranks.size(), entry.sequence);
    }
    using Seen = decltype(seen);
    EXPECT_EQ(
        seen, rank() == 1 ? (Seen{{3, 0}, {3, 1}, {3, 2}})
                          : (Seen{{3, 0}, {3, 1}, {2, 0}, {2, 1}, {3, 2}}));
  });
}

TEST(FlightRecordTest, FollowsAnAsynchronousCall) {
  run_ranks(2, [] {
    const Communicator comm = init().communicator();
    const auto last = [] { return flight_record().back(); };
    Communicator::Work work = comm.all_reduce_async(zero_floats(3));
    EXPECT_EQ(last().state, FlightState::kStarted);
    EXPECT_FALSE(last().took.has_value());
    expect_parts(to_string(last()), {", under way"});
    while (!work.done()) {
      std::this_thread::yield();
    }
    EXPECT_EQ(last().state, FlightState::kStarted);
    const auto took = last().took;
    ASSERT_TRUE(took.has_value());
    expect_parts(to_string(last()), {", done after ", ", not waited for"});
    std::this_thread::sleep_for(milliseconds(2));
    work.wait();
    EXPECT_EQ(last().state, FlightState::kCompleted);
    EXPECT_EQ(last().took, took) << "it ended when it was seen to be done";
    {
      const Communicator::Work dropped = comm.all_reduce_async(zero_floats(4));
    }
    EXPECT_EQ(last().state, FlightState::kCompleted);
  });
}

TEST(FlightRecordTest, AMismatchIsAFailedCallOnEveryRank) {
  run_ranks(3, [] {
    const Communicator comm = init().communicator();
    comm.barrier();
    mismatch(comm);
    const auto record = flight_record();
    ASSERT_EQ(record.size(), 2U);
    EXPECT_EQ(record[0].state, FlightState::kCompleted);
    EXPECT_EQ(record[0].error, "");
    // A rank that comes when two others have disagreed is told at once.
    EXPECT_TRUE(
        record[1].state == FlightState::kFailed ||
        record[1].state == FlightState::kRefused);
    expect_parts(
        to_string(record[1]),
        {c10::str(
             "rank ", rank(), ": call 1 on group {0, 1, 2}: all_reduce(f32[",
             rank() + 1, "], sum), user, started "),
         " ms, " + to_string(record[1].state) + " after ",
         "ranks disagree on the number of elements"});
  });
}

TEST(FlightRecordTest, ADeadlineIsAFailedCallOnEveryRank) {
  std::array<std::optional<std::chrono::microseconds>, 3> took;
  run_ranks(3, [&] {
    const Communicator comm = init().communicator();
    comm.barrier();  // ranks that start late are not what is tested
    init().set_deadline(milliseconds(300));
    if (rank() == 2) {
      std::this_thread::sleep_for(milliseconds(1200));
    }
    EXPECT_NE(error_of([&] { comm.all_reduce(zero_floats(6)); }), "");
    const FlightEntry last = flight_record().back();
    // One that comes late is told when it starts or when it waits.
    EXPECT_TRUE(
        last.state == FlightState::kFailed ||
        (rank() == 2 && last.state == FlightState::kRefused));
    expect_parts(
        last.error,
        {"call 1 did not complete within the deadline of 300 ms; waited for "
         "rank 2"});
    EXPECT_EQ(last.error.find("group {"), std::string::npos)
        << "the call and its group are fields of their own";
    took[static_cast<size_t>(rank())] = last.took;
  });
  // Who came later is told with the other.
  EXPECT_GE(*std::max(took[0], took[1]), milliseconds(290));
}

TEST(FlightRecordTest, AnExceptionElsewhereIsAFailedCallWithoutControlCodes) {
  expect_error<c10::Error>(
      [] {
        run_ranks(2, [] {
          const Communicator comm = init().communicator();
          comm.barrier();
          TORCH_CHECK(rank() == 0, "planted\n\x1b[31m \"here\"");
          EXPECT_NE(error_of([&] { comm.barrier(); }), "");
          const FlightEntry last = flight_record().back();
          EXPECT_NE(last.state, FlightState::kCompleted);
          expect_parts(
              to_string(last),
              {"rank 1 failed: planted\\x0a\\x1b[31m \"here\""});
          expect_parts(
              to_json(last),
              {"rank 1 failed: planted\\\\x0a\\\\x1b[31m \\\"here\\\""});
        });
      },
      {"planted"});
}

TEST(FlightRecordTest, ACallThatAnExceptionPassesIsGivenUp) {
  run_ranks(2, [] {
    const Communicator comm = init().communicator();
    if (rank() == 0) {
      EXPECT_EQ(
          error_of([&] {
            const Communicator::Work work =
                comm.all_reduce_async(zero_floats(3));
            TORCH_CHECK(false, "planted");
          }),
          "planted");
      const FlightEntry last = flight_record().back();
      EXPECT_EQ(last.state, FlightState::kGivenUp);
      expect_parts(
          to_string(last), {", given up after ", "an exception on this rank"});
    } else {
      std::this_thread::sleep_for(milliseconds(30));  // or it would complete
      EXPECT_NE(error_of([&] { comm.all_reduce(zero_floats(3)); }), "");
    }
    // The next call hears that the group is broken.
    EXPECT_NE(error_of([&] { comm.barrier(); }), "");
    expect_parts(flight_record().back().error, {"given up by rank 0"});
  });
}

TEST(FlightRecordTest, ABrokenGroupIsSeenOnceAndOthersGoOn) {
  run_ranks(2, [] {
    const Communicator comm = init().communicator();
    const Communicator other = init().communicator({1, 0});
    mismatch(comm);
    EXPECT_EQ(flight_record().size(), 1U);
    for (int k = 0; k < 300; ++k) {
      EXPECT_NE(error_of([&] { comm.barrier(); }), "");
    }
    EXPECT_EQ(flight_record().size(), 1U) << "what led to it stays";
    other.barrier();
    EXPECT_EQ(flight_record().back().call, "barrier()");
  });
}

TEST(FlightRecordTest, CallsWithWrongArgumentsAreNoCalls) {
  run_ranks(2, [] {
    const Communicator comm = init().communicator();
    EXPECT_NE(
        error_of([&] { comm.all_gather(zero_floats(3), zero_floats(2)); }), "");
    EXPECT_TRUE(flight_record().empty());
    comm.barrier();
    EXPECT_EQ(flight_record().size(), 1U);
  });
}

TEST(FlightRecordTest, SeveralThreadsMayCall) {
  run_ranks(2, [] {
    const std::vector<Communicator> groups{
        init().communicator(), init().communicator({1, 0})};
    std::vector<std::thread> threads;
    for (const Communicator& comm : groups) {
      threads.emplace_back([&comm] {
        for (int k = 0; k < 200; ++k) {
          comm.all_reduce(zero_floats(2));
        }
      });
    }
    for (int k = 0; k < 50; ++k) {
      EXPECT_LE(flight_record().size(), 256U);
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    EXPECT_EQ(flight_record().back().number, 399);
    for (const FlightEntry& entry : flight_record()) {
      EXPECT_EQ(entry.state, FlightState::kCompleted);
    }
  });
}

TEST(FlightRecordTest, PrintsAnEntry) {
  FlightEntry entry{
      .rank = 2,
      .ranks = {0, 2},
      .number = 31,
      .sequence = 17,
      .kind = "all_reduce",
      .call = "all_reduce(f32[8], sum)",
      .cause = "aten::mm",
      .in_backward = true,
      .state = FlightState::kFailed,
      .started = std::chrono::microseconds(12304),
      .took = std::chrono::microseconds(50020),
      .error = "waited for rank 0"};
  EXPECT_EQ(
      to_string(entry),
      "rank 2: call 17 on group {0, 2}: all_reduce(f32[8], sum), aten::mm in "
      "backward, started 12.304 ms, failed after 50.020 ms: waited for rank 0");
  EXPECT_EQ(
      to_json(entry),
      "{\"rank\": 2, \"ranks\": [0, 2], \"number\": 31, \"sequence\": 17, "
      "\"kind\": \"all_reduce\", \"call\": \"all_reduce(f32[8], sum)\", "
      "\"cause\": \"aten::mm\", \"in_backward\": true, \"state\": \"failed\", "
      "\"started\": 12304, \"took\": 50020, \"error\": \"waited for rank 0\"}");
  entry.ranks.clear();
  for (int64_t r = 0; r < 1024; ++r) {
    entry.ranks.push_back(r);
  }
  entry.sequence = -1;
  entry.took.reset();
  expect_parts(
      to_string(entry),
      {"rank 2: message on group {0, 1, 2, 3, 4, 5, 6, 7, ..., 1023} of 1024 "
       "ranks: all_reduce"});
  expect_parts(to_json(entry), {"\"took\": null"});
}

}  // namespace
}  // namespace tessera
