// Communicators beyond plain data movement: asynchronous handles, groups,
// strides, and what one rank's own arguments get wrong.
#include <gtest/gtest.h>
#include <tessera/comm/world.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/quantize_per_tensor.h>
#include <ATen/ops/zeros.h>

#include "comm/expect_error.h"
#include "harness/ranks.h"

namespace tessera {
namespace {

using harness::run_ranks;

at::Tensor numbers(int64_t begin, int64_t count) {
  return at::arange(begin, begin + count, at::kLong);
}

TEST(WorkTest, HandlesMayBeWaitedForInAnyOrder) {
  run_ranks(4, [] {
    const Communicator comm = init().communicator();
    const int64_t me = comm.rank();
    for (int trial = 0; trial < 50; ++trial) {
      std::vector<at::Tensor> outputs;
      std::vector<Communicator::Work> works;
      for (int64_t k = 0; k < 6; ++k) {
        const int64_t count = k % 2 == 0 ? 5 : 30000;
        outputs.push_back(at::empty({4 * count}, at::kLong));
        works.push_back(comm.all_gather_async(
            outputs.back(), numbers(1000 * k + 100000 * me, count)));
      }
      // Rank 0 waits forwards, 1 backwards, 2 starts in the middle, 3 drops.
      for (size_t i = 0; i < 6 && me != 3; ++i) {
        works[me == 0 ? i : me == 1 ? 5 - i : (i + 3) % 6].wait();
      }
      works.clear();
      for (int64_t k = 0; k < 6; ++k) {
        const int64_t count = k % 2 == 0 ? 5 : 30000;
        for (int64_t r = 0; r < 4; ++r) {
          EXPECT_TRUE(at::equal(
              outputs[static_cast<size_t>(k)].narrow(0, r * count, count),
              numbers(1000 * k + 100000 * r, count)));
        }
      }
    }
  });
}

TEST(WorkTest, PollingDoneMakesProgress) {
  run_ranks(3, [] {
    const Communicator comm = init().communicator();
    const at::Tensor tensor = at::full({100000}, comm.rank() + 1, at::kLong);
    Communicator::Work work = comm.all_reduce_async(tensor);
    while (!work.done()) {
    }
    EXPECT_EQ(tensor[99999].item<int64_t>(), 6);
    work.wait();
    work.wait();
  });
}

TEST(WorkTest, AnEmptyHandleIsDone) {
  Communicator::Work work;
  EXPECT_TRUE(work.done());
  work.wait();
}

TEST(WorkTest, MessagesOfOneTagArriveInOrderAndTagsAreApart) {
  run_ranks(2, [] {
    const Communicator comm = init().communicator();
    if (comm.rank() == 0) {
      std::vector<Communicator::Work> works;
      for (int64_t k = 0; k < 4; ++k) {
        works.push_back(comm.send_async(numbers(10 * k, 3), 1, k % 2));
      }
      return;
    }
    for (const int64_t k : {1, 3, 0, 2}) {
      const at::Tensor tensor = at::empty({3}, at::kLong);
      comm.recv(tensor, 0, k % 2);
      EXPECT_TRUE(at::equal(tensor, numbers(10 * k, 3))) << k;
    }
  });
}

TEST(WorkTest, ReceivesMayBePostedAheadOfTheirSends) {
  run_ranks(2, [] {
    const Communicator comm = init().communicator();
    const int64_t other = 1 - comm.rank();
    std::vector<at::Tensor> outputs;
    std::vector<Communicator::Work> works;
    for (int64_t k = 0; k < 4; ++k) {
      outputs.push_back(at::empty({k % 2 == 0 ? 3 : 20000}, at::kLong));
      works.push_back(comm.recv_async(outputs.back(), other));
    }
    for (int64_t k = 0; k < 4; ++k) {
      const int64_t count = k % 2 == 0 ? 3 : 20000;
      works.push_back(
          comm.send_async(numbers(100000 * k + comm.rank(), count), other));
    }
    works.clear();
    for (int64_t k = 0; k < 4; ++k) {
      const int64_t count = k % 2 == 0 ? 3 : 20000;
      EXPECT_TRUE(at::equal(
          outputs[static_cast<size_t>(k)], numbers(100000 * k + other, count)))
          << k;
    }
  });
}

TEST(WorkTest, AMessageNeedsItsTwoRanksOnly) {
  run_ranks(4, [] {
    const Communicator comm = init().communicator();
    const int64_t me = comm.rank();
    if (me == 1 || me == 2) {
      const at::Tensor output = at::empty({3}, at::kLong);
      Communicator::Work work = comm.send_async(numbers(10 * me, 3), 3 - me, 7);
      comm.recv(output, 3 - me, 7);
      EXPECT_TRUE(at::equal(output, numbers(10 * (3 - me), 3)));
    }
  });
}

TEST(WorkTest, ARankMaySendToItself) {
  run_ranks(2, [] {
    const Communicator comm = init().communicator();
    const at::Tensor output = at::empty({3}, at::kLong);
    Communicator::Work work =
        comm.send_async(numbers(comm.rank(), 3), comm.rank());
    comm.recv(output, comm.rank());
    EXPECT_TRUE(at::equal(output, numbers(comm.rank(), 3)));
  });
}

TEST(CommunicatorTest, PlainFormsCutEvenly) {
  run_ranks(3, [] {
    const Communicator comm = init().communicator();
    const int64_t me = comm.rank();
    const at::Tensor gathered = at::empty({6}, at::kLong);
    comm.all_gather(gathered, numbers(10 * me, 2));
    EXPECT_EQ(gathered[5].item<int64_t>(), 21);
    const at::Tensor reduced = at::empty({2}, at::kLong);
    comm.reduce_scatter(reduced, numbers(10 * me, 6));
    EXPECT_EQ(reduced[1].item<int64_t>(), 30 + 3 * (2 * me + 1));
    const at::Tensor exchanged = at::empty({6}, at::kLong);
    comm.all_to_all(exchanged, numbers(10 * me, 6));
    EXPECT_EQ(exchanged[4].item<int64_t>(), 20 + 2 * me);
    const at::Tensor part = at::empty({2}, at::kLong);
    comm.scatter(part, me == 1 ? numbers(50, 6) : at::Tensor(), 1);
    EXPECT_EQ(part[1].item<int64_t>(), 51 + 2 * me);
    const at::Tensor all = me == 2 ? at::empty({6}, at::kLong) : at::Tensor();
    comm.gather(all, numbers(10 * me, 2), 2);
    EXPECT_TRUE(me != 2 || all[3].item<int64_t>() == 11);
  });
}

TEST(CommunicatorTest, InputsMayHaveAnyStrides) {
  run_ranks(2, [] {
    const Communicator comm = init().communicator();
    const at::Tensor grid = numbers(100 * comm.rank(), 12).view({3, 4});
    const at::Tensor output = at::empty({2, 4, 3}, at::kLong);
    comm.all_gather(output, grid.t());
    for (int64_t r = 0; r < 2; ++r) {
      EXPECT_TRUE(at::equal(output[r], numbers(100 * r, 12).view({3, 4}).t()));
    }
    const at::Tensor column = at::empty({3}, at::kLong);
    Communicator::Work work =
        comm.send_async(grid.select(1, 2), 1 - comm.rank());
    comm.recv(column, 1 - comm.rank());
    EXPECT_EQ(column[1].item<int64_t>(), 100 * (1 - comm.rank()) + 6);
    const at::Tensor part = at::empty({1, 3}, at::kLong);
    comm.reduce_scatter(part, grid.slice(1, 0, 2).t());
    EXPECT_EQ(part[0][1].item<int64_t>(), 100 + 2 * (4 + comm.rank()));
  });
}

TEST(CommunicatorTest, LazyConjugatesAreResolved) {
  run_ranks(2, [] {
    const Communicator comm = init().communicator();
    const at::Tensor x =
        at::full({1}, c10::complex<double>(1, 2), at::kComplexDouble);
    const at::Tensor output = at::empty({2}, at::kComplexDouble);
    comm.all_gather(output, x.conj());
    EXPECT_EQ(
        output[1].item<c10::complex<double>>(), c10::complex<double>(1, -2));
  });
}

TEST(CommunicatorTest, QuantizedTensorsMoveAsBytes) {
  run_ranks(2, [] {
    const Communicator comm = init().communicator();
    const at::Tensor like = at::quantize_per_tensor(
        at::full({4}, 0.5 * static_cast<double>(comm.rank() + 1)), 0.25, 0,
        at::kQInt8);
    const at::Tensor output =
        at::quantize_per_tensor(at::zeros({8}), 0.25, 0, at::kQInt8);
    comm.all_gather(output, like);
    EXPECT_EQ(output.int_repr()[0].item<int>(), 2);
    EXPECT_EQ(output.int_repr()[7].item<int>(), 4);
  });
}

TEST(CommunicatorTest, AWrittenTensorHasANewVersion) {
  run_ranks(2, [] {
    const at::Tensor tensor = at::zeros({2});
    const auto version = tensor._version();
    init().communicator().all_reduce(tensor);
    EXPECT_GT(tensor._version(), version);
  });
}

TEST(CommunicatorTest, GroupsKeepTheirOwnOrder) {
  run_ranks(4, [] {
    const World world = init();
    if (world.rank() == 1) {
      return;
    }
    const Communicator comm = world.communicator({3, 0, 2});
    EXPECT_EQ(comm.size(), 3);
    EXPECT_EQ(comm.ranks(), (std::vector<int64_t>{3, 0, 2}));
    EXPECT_EQ(comm.rank(), world.rank() == 3 ? 0 : world.rank() == 0 ? 1 : 2);
    const at::Tensor output = at::empty({3}, at::kLong);
    comm.all_gather(output, numbers(world.rank(), 1));
    EXPECT_EQ(output[0].item<int64_t>(), 3);
    EXPECT_EQ(output[1].item<int64_t>(), 0);
    EXPECT_EQ(output[2].item<int64_t>(), 2);
    const at::Tensor root = at::full({1}, world.rank(), at::kLong);
    comm.broadcast(root, 0);
    EXPECT_EQ(root.item<int64_t>(), 3);
  });
}

TEST(CommunicatorTest, SplitOrdersByKeyThenRank) {
  run_ranks(6, [] {
    const Communicator comm = init().communicator();
    const int64_t me = comm.rank();
    const Communicator half = comm.split(me % 2, me == 4 ? -1 : 0);
    EXPECT_EQ(
        half.ranks(), me % 2 == 0 ? (std::vector<int64_t>{4, 0, 2})
                                  : (std::vector<int64_t>{1, 3, 5}));
    const at::Tensor sum = at::full({1}, me, at::kLong);
    half.all_reduce(sum);
    EXPECT_EQ(sum.item<int64_t>(), me % 2 == 0 ? 6 : 9);
    const Communicator none = comm.split(me == 5 ? -1 : 0);
    EXPECT_EQ(none.defined(), me != 5);
    const Communicator pair = half.split(half.rank() / 2);
    EXPECT_EQ(pair.size(), half.rank() < 2 ? 2 : 1);
    pair.barrier();
  });
}

TEST(CommunicatorTest, GroupsOfOneRankWork) {
  const Communicator comm = init().communicator({rank()});
  EXPECT_EQ(comm.engine(), init().engine());
  const at::Tensor tensor = numbers(3, 2);
  comm.all_reduce(tensor);
  comm.broadcast(tensor, 0);
  comm.barrier();
  EXPECT_TRUE(at::equal(tensor, numbers(3, 2)));
}

// Every local error, seen on a world of one rank before anything moves.
TEST(CommunicatorTest, WrongArgumentsAreNamed) {
  const Communicator comm = init().communicator({rank()});
  const at::Tensor four = at::zeros({4});
  const auto out = [] { return at::zeros({4}); };
  expect_error<c10::ValueError>(
      [&] { comm.all_gather(at::zeros({3}), four); },
      {"all_gather on group {" + std::to_string(rank()) + "}, rank ", "output",
       "4 elements", "got 3"});
  expect_error<c10::ValueError>(
      [&] { comm.all_gather_v(out(), four, {}); },
      {"all_gather", "one entry per rank", "got none for 1"});
  expect_error<c10::ValueError>(
      [&] {
        comm.all_gather_v(out(), four, {2, 2});
      },
      {"one entry per rank", "got 2 for 1"});
  expect_error<c10::ValueError>(
      [&] { comm.reduce_scatter_v(out(), four, {-4}); },
      {"reduce_scatter", "negative"});
  expect_error<c10::ValueError>(
      [&] { comm.reduce_scatter(at::zeros({2}), four); },
      {"reduce_scatter", "input must have 2", "got 4"});
  expect_error<c10::ValueError>(
      [&] {
        comm.all_gather(at::zeros({2, 2}).t(), four);
      },
      {"output must be contiguous", "strides"});
  expect_error<c10::ValueError>(
      [&] {
        comm.all_reduce(at::zeros({2, 2}).t());
      },
      {"contiguous"});
  expect_error<c10::ValueError>(
      [&] { comm.all_gather(four.narrow(0, 1, 2), four.narrow(0, 2, 2)); },
      {"must not share memory", "clone()"});
  expect_error<c10::ValueError>(
      [&] {
        comm.all_gather(four, four.view({2, 2}));
      },
      {"must not share memory"});
  expect_error<c10::TypeError>(
      [&] { comm.all_gather(at::zeros({4}, at::kInt), four); },
      {"one dtype", "f32 and i32"});
  expect_error<c10::ValueError>(
      [&] { comm.all_gather(at::zeros({4}, at::kMeta), four); },
      {"one device", "cpu and meta"});
  expect_error<c10::IndexError>(
      [&] { comm.broadcast(four, 1); },
      {"broadcast", "root", "0 to 0", "got 1"});
  expect_error<c10::IndexError>(
      [&] { comm.send(four, -1); }, {"send", "peer", "got -1"});
  expect_error<c10::ValueError>(
      [&] { comm.all_reduce(at::Tensor()); }, {"undefined"});
  expect_error<c10::TypeError>(
      [&] { comm.all_gather(out(), four.to_sparse()); },
      {"plain dense", "Sparse"});
  expect_error<c10::TypeError>(
      [&] { comm.all_reduce(at::zeros({4}, at::kInt), ReduceOp::kAvg); },
      {"avg", "i32"});
  expect_error<c10::TypeError>(
      [&] { comm.all_reduce(at::zeros({4}, at::kBool), ReduceOp::kAvg); },
      {"avg", "bool"});
  expect_error<c10::TypeError>(
      [&] {
        comm.all_reduce(at::zeros({4}, at::kComplexFloat), ReduceOp::kMax);
      },
      {"max", "ordered", "c64"});
  expect_error<c10::TypeError>(
      [&] { comm.all_reduce(at::empty({4}, at::kBits8)); },
      {"Bits8", "no arithmetic"});
  expect_error<c10::ValueError>(
      [&] { comm.all_reduce(at::zeros({4}, at::kComplexFloat).conj()); },
      {"lazy conjugate"});
  expect_error<c10::ValueError>(
      [] { Communicator().barrier(); }, {"Communicator", "undefined"});
}

TEST(CommunicatorTest, UnevenInputsNeedTheVForm) {
  run_ranks(2, [] {
    const Communicator comm = init().communicator();
    expect_error<c10::ValueError>(
        [&] { comm.all_to_all(at::zeros({3}), at::zeros({3})); },
        {"all_to_all", "divide evenly over 2", "got 3", "all_to_all_v"});
  });
}

}  // namespace
}  // namespace tessera
