// A communicator over a ready process group: the traps of its backends, and
// what happens to the group when something goes wrong.
#include <gtest/gtest.h>
#include <tessera/comm/device_mesh.h>
#include <tessera/comm/world.h>

#include <map>
#include <mutex>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "comm/engine/c10d/group_ranks.h"

namespace tessera {
namespace {

using testing::expect_group_works;
using testing::GroupKind;
using testing::GroupPtr;
using testing::run_group_ranks;
using Counts = std::vector<int64_t>;
using Results = std::vector<at::Tensor>;
using Body = std::function<Results(const Communicator&)>;

constexpr auto kDeadline = std::chrono::milliseconds(20000);
constexpr int kRanks = 3;

class FromProcessGroup : public ::testing::TestWithParam<GroupKind> {};

std::vector<uint8_t> bytes_of(const at::Tensor& tensor) {
  const auto* data = static_cast<const uint8_t*>(tensor.const_data_ptr());
  return std::vector<uint8_t>(data, data + tensor.nbytes());
}

// Expects on each rank what the threads engine gives, bit for bit.
void expect_same_as_threads(GroupKind kind, const Body& body) {
  std::mutex mutex;
  std::map<int64_t, Results> want;
  run_ranks(kRanks, [&] {
    const Communicator comm = init().communicator();
    Results mine = body(comm);
    const std::lock_guard<std::mutex> lock(mutex);
    want[comm.rank()] = std::move(mine);
  });
  run_group_ranks(kind, kRanks, [&](const GroupPtr& group) {
    const Communicator comm = from_process_group(group, kDeadline);
    const Results got = body(comm);
    const Results& expected = want.at(comm.rank());
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(bytes_of(got[i]), bytes_of(expected[i]))
          << "result " << i << " on rank " << comm.rank();
    }
  });
}

at::Tensor values(int64_t count, int64_t rank, at::ScalarType dtype) {
  const at::Tensor v = at::arange(count, at::kFloat).mul(0.5).add(7 * rank + 1);
  return dtype == at::kBool ? v.remainder(2).gt(0.7) : v.to(dtype);
}

TEST_P(FromProcessGroup, HasTheGroupsRanksInAWorldOfItsOwn) {
  run_group_ranks(GetParam(), kRanks, [](const GroupPtr& group) {
    const Communicator comm = from_process_group(group, kDeadline);
    EXPECT_EQ(comm.rank(), group->getRank());
    EXPECT_EQ(comm.ranks(), Counts({0, 1, 2}));
    EXPECT_EQ(comm.engine(), "c10d");
    const DeviceMesh mesh = DeviceMesh::from_group({comm}, at::kCPU);
    EXPECT_EQ(mesh.world().rank(), group->getRank());
    EXPECT_EQ(mesh.world().size(), kRanks);
    EXPECT_EQ(mesh.local_rank(), group->getRank());
  });
}

TEST_P(FromProcessGroup, SendsTheElementsOfStridedInputs) {
  expect_same_as_threads(GetParam(), [](const Communicator& comm) {
    const at::Tensor wide = values(8, comm.rank(), at::kFloat).reshape({4, 2});
    Results results = {at::empty({12}), at::empty({12}), at::empty({4})};
    comm.all_gather(results[0], wide.select(1, 1));
    comm.all_to_all(
        results[1], values(24, comm.rank(), at::kFloat).slice(0, 0, 24, 2));
    comm.all_reduce(results[2], wide.t().select(0, 1));
    return results;
  });
}

TEST_P(FromProcessGroup, TakesUnevenAndEmptyRuns) {
  expect_same_as_threads(GetParam(), [](const Communicator& comm) {
    const int64_t r = comm.rank();
    const Counts counts = {4, 0, 2};
    Results results = {
        at::zeros({6}), at::zeros({2 * r + 3}), at::zeros({0}),
        at::zeros({counts[static_cast<size_t>(r)]})};
    comm.all_gather_v(
        results[0], values(counts[static_cast<size_t>(r)], r, at::kFloat),
        counts);
    // Rank s sends r + s - 1 + ... elements: r -> s is 0 for r = s = 0.
    Counts to;
    Counts from;
    int64_t total = 0;
    int64_t received = 0;
    for (int64_t s = 0; s < comm.size(); ++s) {
      to.push_back((r + 2 * s) % 4);
      from.push_back((s + 2 * r) % 4);
      total += to.back();
      received += from.back();
    }
    results[1] = at::zeros({received});
    comm.all_to_all_v(results[1], values(total, r, at::kFloat), from, to);
    comm.all_gather(results[2], at::zeros({0}));
    comm.reduce_scatter_v(results[3], values(6, r, at::kFloat), counts);
    comm.broadcast(results[2], 1);
    return results;
  });
}

TEST_P(FromProcessGroup, MovesEveryDtype) {
  expect_same_as_threads(GetParam(), [](const Communicator& comm) {
    Results results;
    for (const at::ScalarType dtype :
         {at::kBFloat16, at::kHalf, at::kBool, at::kComplexFloat, at::kShort,
          at::kUInt16, at::kFloat8_e4m3fn, at::kDouble}) {
      const at::Tensor mine = values(6, comm.rank(), dtype);
      for (const int64_t size : {18, 6, 6, 2}) {
        results.push_back(at::empty({size}, dtype));
      }
      const size_t at = results.size() - 4;
      comm.all_gather(results[at], mine);
      comm.all_to_all(results[at + 1], mine);
      results[at + 2].copy_(mine);
      comm.broadcast(results[at + 2], 2);
      comm.scatter(results[at + 3], mine, 1);
    }
    return results;
  });
}

TEST_P(FromProcessGroup, ReducesInRankOrderWithEveryDtype) {
  expect_same_as_threads(GetParam(), [](const Communicator& comm) {
    Results results;
    for (const at::ScalarType dtype :
         {at::kBFloat16, at::kHalf, at::kFloat, at::kShort, at::kUInt16}) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
        results.push_back(values(9, comm.rank(), dtype));
        comm.all_reduce(results.back(), op);
      }
    }
    results.push_back(values(30000, comm.rank(), at::kFloat).div(3));
    comm.all_reduce(results.back(), ReduceOp::kAvg);
    results.push_back(values(9, comm.rank(), at::kBool));
    comm.all_reduce(results.back(), ReduceOp::kMax);
    results.push_back(values(9, comm.rank(), at::kComplexFloat));
    comm.all_reduce(results.back(), ReduceOp::kSum);
    return results;
  });
}

TEST_P(FromProcessGroup, RefusesAnAverageOfIntegersBeforeAnythingMoves) {
  run_group_ranks(GetParam(), kRanks, [](const GroupPtr& group) {
    const Communicator comm = from_process_group(group, kDeadline);
    expect_error<c10::TypeError>(
        [&] { comm.all_reduce(at::zeros({2}, at::kLong), ReduceOp::kAvg); },
        {"all_reduce on group {0, 1, 2}", "avg wants a floating point"});
    at::Tensor sum = at::full({1}, 1.0F);
    comm.all_reduce(sum);
    EXPECT_EQ(sum.item<float>(), 3);
  });
}

TEST_P(FromProcessGroup, PassesMessagesInTheOrderOfTheirTag) {
  run_group_ranks(GetParam(), kRanks, [](const GroupPtr& group) {
    const Communicator comm = from_process_group(group, kDeadline);
    if (GetParam() == GroupKind::kNoStore) {
      expect_parts(
          error_of([&] { comm.send(at::zeros({1}), (comm.rank() + 1) % 3); }),
          {"send", "messages are passed through the process group's store"});
      return;
    }
    const int64_t next = (comm.rank() + 1) % 3;
    const int64_t before = (comm.rank() + 2) % 3;
    std::vector<Communicator::Work> sent;
    for (int64_t i = 0; i < 4; ++i) {
      sent.push_back(
          comm.send_async(values(5 + i, comm.rank(), at::kShort), next, i % 2));
    }
    for (const int64_t i : {1, 0, 2, 3}) {
      const at::Tensor got = at::empty({5 + i}, at::kShort);
      comm.recv(got, before, i % 2);
      EXPECT_TRUE(at::equal(got, values(5 + i, before, at::kShort)));
    }
  });
}

TEST_P(FromProcessGroup, RanksThatDisagreeAllThrowAndCanStartAnew) {
  run_group_ranks(GetParam(), kRanks, [](const GroupPtr& group) {
    const bool odd = group->getRank() == 2;
    const std::vector<std::function<void(const Communicator&)>> calls = {
        [&](const Communicator& c) { c.all_reduce(at::zeros({odd ? 5 : 4})); },
        [&](const Communicator& c) {
          c.all_reduce(at::zeros({4}, odd ? at::kInt : at::kFloat));
        },
        [&](const Communicator& c) {
          odd ? c.barrier() : c.all_gather(at::zeros({3}), at::zeros({1}));
        }};
    for (const auto& call : calls) {
      const Communicator comm = from_process_group(group, kDeadline);
      const std::string text = error_of([&] { call(comm); });
      expect_parts(text, {"group {0, 1, 2}", "ranks disagree", "rank 2"});
      expect_parts(
          error_of([&] { comm.barrier(); }), {"broken", "ranks disagree"});
    }
    at::Tensor sum = at::full({1}, 1.0F);
    from_process_group(group, kDeadline).all_reduce(sum);
    EXPECT_EQ(sum.item<float>(), 3);
  });
}

TEST_P(FromProcessGroup, AFewRanksCanFormAGroup) {
  run_group_ranks(GetParam(), kRanks, [](const GroupPtr& group) {
    const Communicator comm = from_process_group(group, kDeadline);
    const bool pair = comm.rank() != 1;
    if (GetParam() == GroupKind::kNoStore) {
      expect_parts(
          error_of([&] { comm.split(pair ? 0 : 1).barrier(); }),
          {"group {", "through the process group's store", "has none"});
      return;
    }
    const Communicator part = comm.split(pair ? 0 : 1, -comm.rank());
    EXPECT_EQ(part.ranks(), pair ? Counts({2, 0}) : Counts({1}));
    at::Tensor sum = at::full({2}, comm.rank() + 1);
    part.all_reduce(sum);
    EXPECT_EQ(sum[0].item<int64_t>(), pair ? 4 : 2);
  });
}

TEST_P(FromProcessGroup, LeavesTheProgramsGroupWholeAfterAFailure) {
  if (GetParam() == GroupKind::kNoStore) {
    GTEST_SKIP() << "calls travel over the group itself";
  }
  run_group_ranks(GetParam(), kRanks, [](const GroupPtr& group) {
    expect_group_works(group);
    const Communicator comm = from_process_group(group, kDeadline);
    const int64_t count = group->getRank() == 1 ? 7 : 4;
    EXPECT_NE(error_of([&] { comm.all_reduce(at::zeros({count})); }), "");
    expect_group_works(group);
  });
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, FromProcessGroup,
    ::testing::Values(GroupKind::kGloo, GroupKind::kPlain, GroupKind::kNoStore),
    [](const auto& kind) { return testing::name_of(kind.param); });

TEST(FromProcessGroupOnGloo, NamesARankThatDoesNotCall) {
  for (const bool joined : {true, false}) {
    run_group_ranks(GroupKind::kGloo, kRanks, [joined](const GroupPtr& group) {
      const auto start = std::chrono::steady_clock::now();
      const Communicator comm =
          from_process_group(group, std::chrono::milliseconds(500));
      if (joined) {
        comm.barrier();
      }
      if (group->getRank() != 1) {
        const std::string text = error_of([&] { comm.barrier(); });
        expect_parts(
            text, {"barrier() on group {0, 1, 2}", "500 ms", "rank 1;"});
      }
      const auto took = std::chrono::steady_clock::now() - start;
      EXPECT_LT(took, std::chrono::seconds(9)) << "rank " << group->getRank();
      expect_group_works(group);
    });
  }
}

TEST(FromProcessGroupOnGloo, MeshesOfTwoWorldsDoNotMix) {
  run_group_ranks(GroupKind::kGloo, 2, [](const GroupPtr& group) {
    const Communicator one = from_process_group(group, kDeadline);
    const Communicator other = from_process_group(group, kDeadline);
    expect_error<c10::ValueError>(
        [&] {
          DeviceMesh::from_group(
              {one.split(0), other.split(group->getRank())}, at::kCPU,
              at::arange(2, at::kLong).reshape({2, 1}));
        },
        {"from_group, rank", "must be of one world"});
    // A mesh of any shape comes from one group.
    const DeviceMesh mesh = DeviceMesh::from_group({one}, at::kCPU, {}, {"all"})
                                .unflatten("all", {1, 2}, {"dp", "tp"});
    at::Tensor sum = at::full({1}, group->getRank() + 1);
    mesh.communicator("tp").all_reduce(sum);
    EXPECT_EQ(sum.item<int64_t>(), 3);
  });
}

TEST(FromProcessGroupArguments, AreChecked) {
  expect_error<c10::ValueError>(
      [] { from_process_group(nullptr); }, {"got no process group"});
  const GroupPtr bare = c10::make_intrusive<::c10d::ProcessGroup>(0, 1);
  expect_error<c10::ValueError>(
      [&] { from_process_group(bare, std::chrono::milliseconds(0)); },
      {"the deadline must be positive"});
  expect_error<c10::ValueError>(
      [&] { from_process_group(bare); }, {"rank 0", "has no backend"});
}

}  // namespace
}  // namespace tessera
