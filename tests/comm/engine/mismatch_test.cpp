// Ranks that disagree: for every collective and every kind of disagreement,
// rank 2 of three makes another call than ranks 0 and 1, and every rank must
// throw an error that shows both.
#include <gtest/gtest.h>
#include <tessera/comm/world.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <mutex>

#include <ATen/ops/zeros.h>

#include "comm/expect_error.h"
#include "harness/ranks.h"

namespace tessera {
namespace {

using harness::run_ranks;

using Call = std::function<void(const Communicator&)>;

at::Tensor zeros(int64_t count, at::ScalarType dtype = at::kFloat) {
  return at::zeros({count}, dtype);
}

Call all_gather(int64_t count, at::ScalarType dtype = at::kFloat) {
  return [=](const Communicator& comm) {
    comm.all_gather(zeros(3 * count, dtype), zeros(count, dtype));
  };
}

Call all_gather_v(const std::vector<int64_t>& counts) {
  return [=](const Communicator& comm) {
    const int64_t mine = counts[static_cast<size_t>(comm.rank())];
    comm.all_gather_v(
        zeros(counts[0] + counts[1] + counts[2]), zeros(mine), counts);
  };
}

Call reduce_scatter(
    int64_t count, at::ScalarType dtype = at::kFloat,
    ReduceOp op = ReduceOp::kSum) {
  return [=](const Communicator& comm) {
    comm.reduce_scatter(zeros(count, dtype), zeros(3 * count, dtype), op);
  };
}

Call reduce_scatter_v(const std::vector<int64_t>& counts) {
  return [=](const Communicator& comm) {
    const int64_t mine = counts[static_cast<size_t>(comm.rank())];
    comm.reduce_scatter_v(
        zeros(mine), zeros(counts[0] + counts[1] + counts[2]), counts);
  };
}

Call all_reduce(
    int64_t count, at::ScalarType dtype = at::kFloat,
    ReduceOp op = ReduceOp::kSum) {
  return [=](const Communicator& comm) {
    comm.all_reduce(zeros(count, dtype), op);
  };
}

Call all_to_all(int64_t count, at::ScalarType dtype = at::kFloat) {
  return [=](const Communicator& comm) {
    comm.all_to_all(zeros(3 * count, dtype), zeros(3 * count, dtype));
  };
}

Call all_to_all_v(
    const std::vector<int64_t>& in, const std::vector<int64_t>& out) {
  return [=](const Communicator& comm) {
    comm.all_to_all_v(
        zeros(out[0] + out[1] + out[2]), zeros(in[0] + in[1] + in[2]), out, in);
  };
}

Call broadcast(
    int64_t count, at::ScalarType dtype = at::kFloat, int64_t root = 0) {
  return [=](const Communicator& comm) {
    comm.broadcast(zeros(count, dtype), root);
  };
}

Call scatter(
    int64_t count, at::ScalarType dtype = at::kFloat, int64_t root = 0) {
  return [=](const Communicator& comm) {
    comm.scatter(zeros(count, dtype), zeros(3 * count, dtype), root);
  };
}

Call scatter_v(const std::vector<int64_t>& counts) {
  return [=](const Communicator& comm) {
    const int64_t mine = counts[static_cast<size_t>(comm.rank())];
    comm.scatter_v(
        zeros(mine), zeros(counts[0] + counts[1] + counts[2]), counts, 0);
  };
}

Call gather(
    int64_t count, at::ScalarType dtype = at::kFloat, int64_t root = 0) {
  return [=](const Communicator& comm) {
    comm.gather(zeros(3 * count, dtype), zeros(count, dtype), root);
  };
}

Call gather_v(const std::vector<int64_t>& counts) {
  return [=](const Communicator& comm) {
    const int64_t mine = counts[static_cast<size_t>(comm.rank())];
    comm.gather_v(
        zeros(counts[0] + counts[1] + counts[2]), zeros(mine), counts, 0);
  };
}

const Call kBarrier = [](const Communicator& comm) { comm.barrier(); };
const Call kSplit = [](const Communicator& comm) { comm.split(0); };

struct Mismatch {
  const char* topic;
  Call usual;
  Call odd;
  const char* usual_text;
  const char* odd_text;
};

std::vector<Mismatch> mismatches() {
  const auto i32 = at::kInt;
  const auto f32 = at::kFloat;
  return {
      // The operation: each collective against another.
      {"the operation", all_gather(2), kBarrier,
       "all_gather(f32[2], counts 2 2 2)", "barrier()"},
      {"the operation", reduce_scatter(2), all_gather(2),
       "reduce_scatter(f32[6], counts 2 2 2, sum)", "all_gather(f32[2]"},
      {"the operation", all_reduce(4), reduce_scatter(2),
       "all_reduce(f32[4], sum)", "reduce_scatter(f32[6]"},
      {"the operation", all_to_all(2), all_reduce(4),
       "all_to_all(f32[6], input counts 2 2 2, output counts 2 2 2)",
       "all_reduce(f32[4], sum)"},
      {"the operation", broadcast(4), all_to_all(2),
       "broadcast(f32[4], root 0)", "all_to_all(f32[6]"},
      {"the operation", scatter(2), broadcast(4), "scatter(f32[",
       "broadcast(f32[4], root 0)"},
      {"the operation", gather(2), scatter(2),
       "gather(f32[2], counts 2 2 2, root 0)",
       "scatter(f32[2], counts 2 2 2, root 0)"},
      {"the operation", kBarrier, gather(2), "barrier()", "gather(f32[2]"},
      {"the operation", kSplit, kBarrier, "split()", "barrier()"},
      // The element counts.
      {"the counts", all_gather(2), all_gather(3), "counts 2 2 2",
       "counts 3 3 3"},
      {"the counts", reduce_scatter(2), reduce_scatter(3), "counts 2 2 2",
       "counts 3 3 3"},
      {"the number of elements", all_reduce(4), all_reduce(5),
       "all_reduce(f32[4]", "all_reduce(f32[5]"},
      {"the counts", all_to_all(2), all_to_all(3), "counts 2 2 2",
       "counts 3 3 3"},
      {"the number of elements", broadcast(4), broadcast(5), "broadcast(f32[4]",
       "broadcast(f32[5]"},
      {"the counts", scatter(2), scatter(3), "counts 2 2 2", "counts 3 3 3"},
      {"the counts", gather(2), gather(3), "counts 2 2 2", "counts 3 3 3"},
      // The dtype.
      {"the dtype", all_gather(2), all_gather(2, i32), "f32[2]", "i32[2]"},
      {"the dtype", reduce_scatter(2), reduce_scatter(2, i32), "f32[6]",
       "i32[6]"},
      {"the dtype", all_reduce(4), all_reduce(4, i32), "f32[4]", "i32[4]"},
      {"the dtype", all_to_all(2), all_to_all(2, i32), "f32[6]", "i32[6]"},
      {"the dtype", broadcast(4), broadcast(4, i32), "f32[4]", "i32[4]"},
      {"the dtype", scatter(2), scatter(2, i32), "f32[", "i32[2]"},
      {"the dtype", gather(2), gather(2, i32), "f32[2]", "i32[2]"},
      // The reduce op.
      {"the reduce op", all_reduce(4), all_reduce(4, f32, ReduceOp::kMax),
       "sum)", "max)"},
      {"the reduce op", reduce_scatter(2),
       reduce_scatter(2, f32, ReduceOp::kAvg), "sum)", "avg)"},
      // The root.
      {"the root", broadcast(4), broadcast(4, f32, 1), "root 0)", "root 1)"},
      {"the root", scatter(2), scatter(2, f32, 2), "root 0)", "root 2)"},
      {"the root", gather(2), gather(2, f32, 2), "root 0)", "root 2)"},
      // The splits.
      {"the counts", all_gather_v({1, 2, 3}), all_gather_v({2, 1, 3}),
       "counts 1 2 3", "counts 2 1 3"},
      {"the counts", reduce_scatter_v({1, 2, 3}), reduce_scatter_v({2, 1, 3}),
       "counts 1 2 3", "counts 2 1 3"},
      {"the counts", scatter_v({1, 2, 3}), scatter_v({2, 1, 3}), "counts 1 2 3",
       "counts 2 1 3"},
      {"the counts", gather_v({1, 2, 3}), gather_v({2, 1, 3}), "counts 1 2 3",
       "counts 2 1 3"},
      {"the counts", all_to_all_v({1, 1, 1}, {1, 1, 1}),
       all_to_all_v({1, 2, 0}, {1, 1, 1}), "input counts 1 1 1",
       "input counts 1 2 0"},
  };
}

TEST(MismatchTest, EveryRankNamesBothRanksAndBothCalls) {
  std::vector<double> milliseconds;
  for (const Mismatch& mismatch : mismatches()) {
    SCOPED_TRACE(
        std::string(mismatch.topic) + ": " + mismatch.usual_text + " and " +
        mismatch.odd_text);
    const auto start = std::chrono::steady_clock::now();
    const auto outcome = harness::outcome_of(3, [&] {
      const Communicator comm = init().communicator();
      comm.barrier();
      const bool odd = comm.rank() == 2;
      const std::string error =
          error_of([&] { (odd ? mismatch.odd : mismatch.usual)(comm); });
      return error + "\n" + error_of([&] { comm.barrier(); });
    });
    milliseconds.push_back(std::chrono::duration<double, std::milli>(
                               std::chrono::steady_clock::now() - start)
                               .count());
    for (size_t r = 0; r < 3; ++r) {
      const size_t end = outcome.texts[r].find('\n');
      const std::string error = outcome.texts[r].substr(0, end);
      expect_parts(
          error, {"on group {0, 1, 2}, rank " + std::to_string(r), "call 1",
                  std::string("ranks disagree on ") + mismatch.topic,
                  "rank 2 called", mismatch.usual_text, mismatch.odd_text});
      EXPECT_TRUE(
          error.find("rank 0 called") != std::string::npos ||
          error.find("rank 1 called") != std::string::npos);
      expect_parts(
          outcome.texts[r].substr(end),
          {"barrier()", "the group is broken", "ranks disagree"});
    }
  }
  std::sort(milliseconds.begin(), milliseconds.end());
  std::cout << "mismatch, from start to end of all ranks: median "
            << milliseconds[milliseconds.size() / 2] << " ms, worst "
            << milliseconds.back() << " ms\n";
  EXPECT_LT(
      milliseconds[milliseconds.size() / 2],
      harness::on_processes() ? 1000 : 50);
}

// Runs one body per rank and returns what each threw. `before` runs first.
std::vector<std::string> errors_of(
    const std::vector<Call>& bodies, const Call& before = {}) {
  const auto body = [&] {
    const Communicator comm = init().communicator();
    if (before) {
      before(comm);
    }
    return error_of([&] { bodies[static_cast<size_t>(comm.rank())](comm); });
  };
  return harness::outcome_of(static_cast<int>(bodies.size()), body).texts;
}

// Threads see at once that every rank waits; processes wait for the deadline,
// which is not to end while they connect.
void short_deadline(const Communicator& comm) {
  comm.barrier();
  if (harness::on_processes()) {
    init().set_deadline(std::chrono::seconds(1));
  }
}

TEST(MismatchTest, ASkippedCallMeetsTheNextOne) {
  const Call usual = [](const Communicator& comm) {
    comm.all_reduce(zeros(4));
    comm.broadcast(zeros(4), 0);
  };
  for (const std::string& error : errors_of({usual, usual, broadcast(4)})) {
    expect_parts(
        error, {"call 0", "rank 2 called broadcast(f32[4], root 0)",
                "called all_reduce(f32[4], sum)"});
  }
}

TEST(MismatchTest, ASkippedLastCallNamesTheRankThatLeft) {
  const Call twice = [](const Communicator& comm) {
    comm.all_reduce(zeros(4));
    comm.all_reduce(zeros(4));
  };
  const auto errors = errors_of({twice, twice, all_reduce(4)});
  for (size_t r = 0; r < 2; ++r) {
    expect_parts(
        errors[r], {"all_reduce(f32[4], sum) on group {0, 1, 2}, rank " +
                        std::to_string(r),
                    "rank 2 returned from its body without making call 1"});
  }
  EXPECT_EQ(errors[2], "");
}

TEST(MismatchTest, CallsOnDifferentGroupsEndOnEveryRank) {
  const auto odd = [](const Communicator&) {
    init().communicator({1, 2}).barrier();
  };
  const auto errors =
      errors_of({all_reduce(4), all_reduce(4), odd}, short_deadline);
  for (size_t r = 0; r < 3; ++r) {
    expect_parts(
        errors[r],
        {r == 2 ? "barrier() on group {1, 2}, rank 2"
                : "all_reduce(f32[4], sum) on group {0, 1, 2}, rank "});
    const auto says = [&](const char* part) {
      return errors[r].find(part) != std::string::npos;
    };
    EXPECT_EQ(says("deadlock"), !harness::on_processes());
    EXPECT_EQ(
        says("waited for rank ") || says("returned from its body"),
        harness::on_processes())
        << errors[r];
  }
}

TEST(MismatchTest, CallsOnDifferentGroupsAreADeadlockThatListsEveryRank) {
  if (harness::on_processes()) {
    GTEST_SKIP() << "only threads know what every rank waits for";
  }
  for (const Call& call :
       {all_gather(2), reduce_scatter(2), all_reduce(4), all_to_all(2),
        broadcast(4), scatter(2), gather(2), kBarrier, kSplit}) {
    const Call odd = [](const Communicator&) {
      init().communicator({1, 2}).barrier();
    };
    for (const std::string& error : errors_of({call, call, odd})) {
      expect_parts(
          error, {"deadlock", "rank 0 waits in", "rank 1 waits in",
                  "on group {0, 1, 2}, call 0",
                  "rank 2 waits in barrier() on group {1, 2}, call 0"});
    }
  }
}

TEST(MismatchTest, ASendAndItsReceiveMustAgree) {
  const auto send = [](int64_t count, at::ScalarType dtype, int64_t tag) {
    return [=](const Communicator& comm) {
      comm.send(zeros(count, dtype), 1, tag);
    };
  };
  const auto recv = [](int64_t count, int64_t tag) {
    return [=](const Communicator& comm) { comm.recv(zeros(count), 0, tag); };
  };
  for (const std::string& error :
       errors_of({send(3, at::kFloat, 0), recv(4, 0)})) {
    expect_parts(
        error,
        {"the number of elements", "rank 0 called send(f32[3], to 1, tag 0)",
         "rank 1 called recv(f32[4], from 0, tag 0)"});
  }
  for (const std::string& error :
       errors_of({send(4, at::kInt, 0), recv(4, 0)})) {
    expect_parts(error, {"the dtype", "send(i32[4]", "recv(f32[4]"});
  }
  const auto errors =
      errors_of({send(4, at::kFloat, 5), recv(4, 6)}, short_deadline);
  for (size_t r = 0; r < 2; ++r) {
    if (harness::on_processes()) {
      expect_parts(
          errors[r], {r == 0 ? "to 1, tag 5" : "from 0, tag 6", "deadline",
                      "waited for rank "});
    } else {
      expect_parts(errors[r], {"deadlock", "to 1, tag 5", "from 0, tag 6"});
    }
  }
}

TEST(MismatchTest, RanksMustNotShareATensorThatIsWritten) {
  if (harness::on_processes()) {
    GTEST_SKIP() << "processes share no memory";
  }
  const at::Tensor shared = zeros(4);
  for (const std::string& error : errors_of(
           {[&](const Communicator& comm) { comm.all_reduce(shared); },
            [&](const Communicator& comm) { comm.all_reduce(shared); }})) {
    expect_parts(
        error, {"share memory that is written", "rank 0 called",
                "rank 1 called", "a tensor of its own"});
  }
  // Reading one tensor from several ranks is fine.
  run_ranks(2, [&] { init().communicator().all_gather(zeros(8), shared); });
}

}  // namespace
}  // namespace tessera
