// What collectives give on a simulated rank: what real ranks get that hold
// equal data, and always what the rank holds itself.
#include <harness/sharded_test.h>

namespace tessera {
namespace {

using testing::error_of;
using Counts = std::vector<int64_t>;

// Small whole numbers, whose sums and products every dtype holds exactly.
at::Tensor values(int64_t count, at::ScalarType dtype) {
  return at::arange(count, at::kInt).remainder(3).add(1).to(dtype);
}

at::Tensor zeroed(int64_t count, at::ScalarType dtype) {
  return at::zeros({count}, at::kByte).to(dtype);
}

// Every collective that is defined by what this rank passes alone.
std::vector<at::Tensor> all_results(
    const Communicator& group, at::ScalarType dtype,
    const std::vector<ReduceOp>& ops) {
  const int64_t n = group.size();
  std::vector<at::Tensor> results;
  const auto out = [&](int64_t count) {
    return results.emplace_back(zeroed(count, dtype));
  };
  group.all_gather(out(3 * n), values(3, dtype));
  for (int64_t root = 0; root < n; ++root) {
    const at::Tensor same = out(4);
    same.copy_(values(4, dtype));
    group.broadcast(same, root);
    group.gather(
        group.rank() == root ? out(2 * n) : at::Tensor(), values(2, dtype),
        root);
  }
  for (const ReduceOp op : ops) {
    group.all_reduce(out(5), values(5, dtype), op);
    const at::Tensor in_place = out(5);
    in_place.copy_(values(5, dtype));
    group.all_reduce(in_place, op);
    group.reduce_scatter(out(2), values(2 * n, dtype), op);
    Counts counts(static_cast<size_t>(n), 1);
    counts[0] = 4;
    group.reduce_scatter_v(
        out(counts[static_cast<size_t>(group.rank())]), values(n + 3, dtype),
        counts, op);
  }
  group.barrier();
  return results;
}

void expect_like_real_ranks(
    int n, at::ScalarType dtype, const std::vector<ReduceOp>& ops) {
  std::vector<std::vector<at::Tensor>> real(static_cast<size_t>(n));
  run_ranks(n, [&] {
    real[static_cast<size_t>(rank())] =
        all_results(init().communicator(), dtype, ops);
  });
  for (int r = 0; r < n; ++r) {
    run_simulated({.rank = r, .size = n}, [&] {
      const auto results = all_results(init().communicator(), dtype, ops);
      const auto& wanted = real[static_cast<size_t>(r)];
      ASSERT_EQ(results.size(), wanted.size());
      for (size_t i = 0; i < results.size(); ++i) {
        EXPECT_TRUE(at::equal(
            results[i].to(at::kComplexDouble),
            wanted[i].to(at::kComplexDouble)))
            << "result " << i << " on rank " << r << " of " << n << ", "
            << dtype_name(dtype);
      }
    });
  }
}

TEST(SimulatedCollectives, EqualThoseOfRealRanksThatHoldEqualData) {
  const std::vector<ReduceOp> whole = {
      ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMax, ReduceOp::kMin};
  std::vector<ReduceOp> all = whole;
  all.push_back(ReduceOp::kAvg);
  for (int n = 1; n <= 4; ++n) {
    for (const auto dtype :
         {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16,
          at::kFloat8_e5m2}) {
      expect_like_real_ranks(n, dtype, all);
    }
    for (const auto dtype :
         {at::kBool, at::kByte, at::kChar, at::kShort, at::kInt, at::kLong,
          at::kUInt16, at::kUInt32, at::kUInt64}) {
      expect_like_real_ranks(n, dtype, whole);
    }
    expect_like_real_ranks(
        n, at::kComplexFloat,
        {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kAvg});
  }
}

// Ranks p and r send each other the same: as many elements, of the same values.
void exchange_like(
    const Communicator& group, std::vector<at::Tensor>& outputs) {
  Counts counts;
  std::vector<at::Tensor> runs;
  for (int64_t r = 0; r < group.size(); ++r) {
    counts.push_back((r + group.rank()) % 3);
    runs.push_back(at::full({counts.back()}, 10 * (r + group.rank())));
  }
  const at::Tensor input = at::cat(runs).to(at::kFloat);
  outputs.push_back(at::full_like(input, -1));
  group.all_to_all_v(outputs.back(), input, counts, counts);
  const at::Tensor even =
      at::arange(group.size()).add(group.rank()).to(at::kFloat);
  outputs.push_back(at::full_like(even, -1));
  group.all_to_all(outputs.back(), even);
}

TEST(SimulatedCollectives, AllToAllEqualsAnExchangeOfEqualRuns) {
  for (int n = 1; n <= 4; ++n) {
    std::vector<std::vector<at::Tensor>> real(static_cast<size_t>(n));
    run_ranks(n, [&] {
      exchange_like(init().communicator(), real[static_cast<size_t>(rank())]);
    });
    for (int r = 0; r < n; ++r) {
      run_simulated({.rank = r, .size = n}, [&] {
        std::vector<at::Tensor> got;
        exchange_like(init().communicator(), got);
        for (size_t i = 0; i < got.size(); ++i) {
          EXPECT_TRUE(at::equal(got[i], real[static_cast<size_t>(r)][i]));
        }
      });
    }
  }
}

TEST(SimulatedCollectives, CutsAndPadsWhereCountsDiffer) {
  run_simulated({.rank = 0, .size = 3}, [] {
    const Communicator group = init().communicator();
    const at::Tensor all = at::full({6}, -1.0);
    group.all_gather_v(all, at::tensor({7.0F, 8.0F}), {2, 3, 1});
    EXPECT_TRUE(
        at::equal(all, at::tensor({7.0F, 8.0F, 7.0F, 8.0F, 0.0F, 7.0F})));

    const at::Tensor received = at::full({5}, -1.0);
    group.all_to_all_v(
        received, at::tensor({1.0F, 2.0F, 3.0F, 4.0F}), {1, 1, 3}, {1, 2, 1});
    EXPECT_TRUE(
        at::equal(received, at::tensor({1.0F, 2.0F, 4.0F, 0.0F, 0.0F})));
  });
}

TEST(SimulatedCollectives, ScatterGivesTheRootItsRunAndOthersZeros) {
  for (int64_t r = 0; r < 3; ++r) {
    run_simulated({.rank = r, .size = 3}, [&] {
      const Communicator group = init().communicator();
      const at::Tensor out = at::full({r == 2 ? 3 : 1}, -1.0);
      const at::Tensor all = at::arange(5, at::kFloat);
      group.scatter_v(out, r == 2 ? all : at::Tensor(), {1, 1, 3}, 2);
      EXPECT_TRUE(at::equal(
          out, r == 2 ? at::arange(2, 5, at::kFloat) : at::zeros({1})));
    });
  }
}

TEST(SimulatedCollectives, MessagesGoOutAndZerosComeIn) {
  run_simulated({.rank = 1, .size = 4}, [] {
    const Communicator group = init().communicator();
    group.send(at::ones({3}), 2);
    const at::Tensor in = at::full({3}, -1.0);
    group.recv(in, 3);
    EXPECT_TRUE(at::equal(in, at::zeros({3})));
  });
}

TEST(SimulatedCollectives, MessagesToItselfArriveInOrder) {
  run_simulated({.rank = 1, .size = 4}, [] {
    const Communicator group = init().communicator();
    const at::Tensor a = at::zeros({2});
    const at::Tensor b = at::zeros({2});
    Communicator::Work first = group.send_async(at::tensor({1.0F, 2.0F}), 1, 5);
    Communicator::Work second =
        group.send_async(at::tensor({3.0F, 4.0F}), 1, 5);
    EXPECT_FALSE(first.done());
    group.recv(a, 1, 5);
    EXPECT_TRUE(first.done());
    EXPECT_FALSE(second.done());
    group.recv(b, 1, 5);
    second.wait();
    EXPECT_TRUE(at::equal(a, at::tensor({1.0F, 2.0F})));
    EXPECT_TRUE(at::equal(b, at::tensor({3.0F, 4.0F})));

    Communicator::Work early = init().communicator().recv_async(a, 1, 6);
    group.send(at::tensor({5.0F, 6.0F}), 1, 6);
    early.wait();
    EXPECT_TRUE(at::equal(a, at::tensor({5.0F, 6.0F})));
  });
}

TEST(SimulatedCollectives, AMessageToItselfThatCannotArriveIsAnError) {
  run_simulated({.rank = 1, .size = 2}, [] {
    const Communicator group = init().communicator();
    const at::Tensor a = at::zeros({2});
    EXPECT_ERROR(
        "recv on group {0, 1}, rank 1: this rank waits for a message to itself",
        group.recv(a, 1));
    // Given up, so that a later pair is not disturbed.
    Communicator::Work sent = group.send_async(at::ones({2}), 1);
    group.recv(a, 1);
    EXPECT_TRUE(at::equal(a, at::ones({2})));

    Communicator::Work other = group.send_async(at::ones({3}), 1, 8);
    EXPECT_ERROR(
        "do not agree on the number of elements: send(f32[3], to 1, tag 8) and "
        "recv(f32[2], from 1, tag 8)",
        group.recv(a, 1, 8));
  });
}

TEST(SimulatedCollectives, SplitIsRefusedUnlessNobodyElseMatters) {
  run_simulated({.rank = 1, .size = 4}, [] {
    const Communicator all = init().communicator();
    EXPECT_ERROR(
        "split on group {0, 1, 2, 3}, rank 1: a simulated rank does not know "
        "the colors of the others; use World::communicator(ranks)",
        all.split(0));
    EXPECT_FALSE(all.split(-1).defined());
    const Communicator own = init().communicator({1});
    EXPECT_EQ(own.split(3).ranks(), Counts{1});
    EXPECT_EQ(init().communicator({3, 1}).rank(), 1);
  });
}

TEST(SimulatedCollectives, CallsAreCheckedAsOnEveryEngine) {
  run_simulated({.rank = 99, .size = 100}, [] {
    const Communicator all = init().communicator();
    EXPECT_ERROR(
        "all_gather on group {0, 1, ..., 99; 100 ranks}, rank 99: the output "
        "must have 200 elements",
        all.all_gather(at::empty({3}), at::empty({2})));
    EXPECT_ERROR(
        "the root must be a rank of the group",
        all.broadcast(at::empty({3}), 100));
  });
}

}  // namespace
}  // namespace tessera
