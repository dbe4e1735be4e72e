// Data of every size, around those at which engines change how they move it:
// 256 bytes travel with what ranks say of a call, an all_reduce of more than
// 32 KiB is cut into slices.
#include <gtest/gtest.h>
#include <tessera/comm/world.h>

#include <functional>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include "harness/ranks.h"

namespace tessera {
namespace {

constexpr int kSizesRanks = 3;
const std::vector<int64_t> kSizes = {0,  1,   16,   63,   64,   65,
                                     66, 192, 1000, 8192, 8193, 100'000};

// Distinct per rank and element.
at::Tensor values(int64_t rank, int64_t numel) {
  return at::arange(numel, at::kFloat) + static_cast<double>(rank) * 200'000;
}

at::Tensor room(int64_t numel) {
  return at::full({numel}, -1.0);
}

void each_size(const std::function<void(const Communicator&, int64_t)>& body) {
  harness::run_ranks(kSizesRanks, [&] {
    const Communicator all = init().communicator();
    for (const int64_t size : kSizes) {
      SCOPED_TRACE(size);
      body(all, size);
    }
  });
}

TEST(SizesTest, AllGatherAndBroadcastCopy) {
  each_size([](const Communicator& all, int64_t size) {
    const at::Tensor output = room(kSizesRanks * size);
    all.all_gather(output, values(all.rank(), size));
    EXPECT_TRUE(output.equal(
        at::cat({values(0, size), values(1, size), values(2, size)})));
    for (int64_t root = 0; root < kSizesRanks; ++root) {
      const at::Tensor tensor = values(all.rank(), size);
      all.broadcast(tensor, root);
      EXPECT_TRUE(tensor.equal(values(root, size)));
    }
  });
}

TEST(SizesTest, ReductionsAddInRankOrder) {
  each_size([](const Communicator& all, int64_t size) {
    const at::Tensor whole = values(all.rank(), size) * 0.1;
    const at::Tensor sum =
        (values(0, size) * 0.1 + values(1, size) * 0.1) + values(2, size) * 0.1;
    const at::Tensor tensor = whole.clone();
    all.all_reduce(tensor);
    EXPECT_TRUE(tensor.equal(sum));
    const at::Tensor part = room(size);
    all.reduce_scatter(part, values(all.rank(), kSizesRanks * size) * 0.1);
    const auto run = [&](int64_t r) {
      return (values(r, kSizesRanks * size) * 0.1)
          .narrow(0, all.rank() * size, size);
    };
    EXPECT_TRUE(part.equal((run(0) + run(1)) + run(2)));
  });
}

TEST(SizesTest, ScatterAndGatherAreInverse) {
  each_size([](const Communicator& all, int64_t size) {
    const at::Tensor whole = values(7, kSizesRanks * size);
    for (int64_t root = 0; root < kSizesRanks; ++root) {
      const bool mine = all.rank() == root;
      const at::Tensor part = room(size);
      all.scatter(part, mine ? whole : at::Tensor(), root);
      EXPECT_TRUE(part.equal(whole.narrow(0, all.rank() * size, size)));
      const at::Tensor back = mine ? room(kSizesRanks * size) : at::Tensor();
      all.gather(back, part, root);
      EXPECT_TRUE(!mine || back.equal(whole));
    }
  });
}

// Rank a sends (a + b) % 3 runs to rank b; those to oneself are of one element,
// so that ranks differ in whether all their runs are small.
TEST(SizesTest, AllToAllMixesSmallAndLargeRuns) {
  each_size([](const Communicator& all, int64_t size) {
    const auto count = [&](int64_t from, int64_t to) {
      return from == to ? int64_t{1} : size * ((from + to) % kSizesRanks);
    };
    std::vector<int64_t> sent;
    std::vector<int64_t> received;
    std::vector<at::Tensor> input;
    std::vector<at::Tensor> expected;
    for (int64_t r = 0; r < kSizesRanks; ++r) {
      sent.push_back(count(all.rank(), r));
      received.push_back(count(r, all.rank()));
      input.push_back(values(all.rank() + 10 * r, sent.back()));
      expected.push_back(values(r + 10 * all.rank(), received.back()));
    }
    const at::Tensor wanted = at::cat(expected);
    const at::Tensor output = room(wanted.numel());
    all.all_to_all_v(output, at::cat(input), received, sent);
    EXPECT_TRUE(output.equal(wanted));
  });
}

TEST(SizesTest, MessagesArrive) {
  each_size([](const Communicator& all, int64_t size) {
    all.barrier();  // Gloo connects all ranks of a group or none
    if (all.rank() == 0) {
      all.send(values(0, size), 1);
    } else if (all.rank() == 1) {
      const at::Tensor tensor = room(size);
      all.recv(tensor, 0);
      EXPECT_TRUE(tensor.equal(values(0, size)));
    }
  });
}

}  // namespace
}  // namespace tessera
