// What every collective puts where, for every dtype, against values computed
// from the definition: element i of rank r is a function of (r, i).
#include <gtest/gtest.h>
#include <tessera/comm/world.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>

#include "harness/ranks.h"

namespace tessera {
namespace {

using harness::run_ranks;

using Counts = std::vector<int64_t>;

// All dtypes, by what can be done with them.
const std::vector<at::ScalarType> kFloats = {
    at::kFloat, at::kDouble, at::kHalf, at::kBFloat16};
const std::vector<at::ScalarType> kIntegers = {
    at::kByte, at::kChar,   at::kShort,  at::kInt,
    at::kLong, at::kUInt16, at::kUInt32, at::kUInt64};
const std::vector<at::ScalarType> kComplex = {
    at::kComplexHalf, at::kComplexFloat, at::kComplexDouble};
const std::vector<at::ScalarType> kFloat8 = {
    at::kFloat8_e5m2, at::kFloat8_e4m3fn, at::kFloat8_e5m2fnuz,
    at::kFloat8_e4m3fnuz, at::kFloat8_e8m0fnu};
const std::vector<at::ScalarType> kOpaque = {
    at::kBits8,   at::kBits16,  at::kBits1x8,
    at::kBits2x4, at::kBits4x2, at::kFloat4_e2m1fn_x2};

std::vector<at::ScalarType> all_dtypes() {
  std::vector<at::ScalarType> all = {at::kBool};
  for (const auto& some : {kFloats, kIntegers, kComplex, kFloat8, kOpaque}) {
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

std::vector<uint8_t> bytes_of(const at::Tensor& tensor) {
  const auto* data = static_cast<const uint8_t*>(tensor.const_data_ptr());
  return std::vector<uint8_t>(data, data + tensor.nbytes());
}

// A tensor whose bytes differ by rank and place; bools stay 0 or 1.
at::Tensor pattern(at::ScalarType dtype, int64_t rank, int64_t count) {
  at::Tensor tensor = at::empty({count}, dtype);
  auto* data = static_cast<uint8_t*>(tensor.mutable_data_ptr());
  for (size_t i = 0; i < tensor.nbytes(); ++i) {
    const auto value = static_cast<uint8_t>(37 * rank + 11 * i + i / 7 + 1);
    data[i] = dtype == at::kBool ? value & 1U : value;
  }
  return tensor;
}

void append_run(
    std::vector<uint8_t>& to, const at::Tensor& from, int64_t begin,
    int64_t count) {
  const std::vector<uint8_t> all = bytes_of(from);
  const auto width = static_cast<int64_t>(from.element_size());
  to.insert(
      to.end(), all.begin() + begin * width,
      all.begin() + (begin + count) * width);
}

int64_t before(const Counts& counts, int64_t rank) {
  int64_t sum = 0;
  for (int64_t r = 0; r < rank; ++r) {
    sum += counts[static_cast<size_t>(r)];
  }
  return sum;
}

// Counts per rank: even, uneven, some empty, all empty, and large enough to be
// cut into parts.
std::vector<Counts> count_lists(int64_t n) {
  std::vector<Counts> lists(5, Counts(static_cast<size_t>(n)));
  for (int64_t r = 0; r < n; ++r) {
    const auto at = static_cast<size_t>(r);
    lists[0][at] = 3;
    lists[1][at] = 1 + (r * 5) % 7;
    lists[2][at] = r % 2 == 0 ? 0 : r + 2;
    lists[3][at] = 0;
    lists[4][at] = 20000 + 13 * r;
  }
  return lists;
}

class CollectivesTest : public testing::TestWithParam<int> {
 protected:
  int64_t n() const { return GetParam(); }

  // Runs `body(communicator, dtype, counts)` for every dtype and count list.
  template <typename Body>
  void for_each_case(const Body& body) {
    run_ranks(GetParam(), [&] {
      const Communicator comm = init().communicator();
      for (const at::ScalarType dtype : all_dtypes()) {
        for (const Counts& counts : count_lists(n())) {
          if (counts[0] > 100 && dtype != at::kInt) {
            continue;
          }
          SCOPED_TRACE(
              std::string(c10::toString(dtype)) + ", rank " +
              std::to_string(comm.rank()));
          body(comm, dtype, counts);
        }
      }
    });
  }
};

TEST_P(CollectivesTest, AllGatherConcatenatesInRankOrder) {
  for_each_case([this](const auto& comm, auto dtype, const auto& counts) {
    const int64_t mine = counts[static_cast<size_t>(comm.rank())];
    const at::Tensor output = at::empty({before(counts, n())}, dtype);
    comm.all_gather_v(output, pattern(dtype, comm.rank(), mine), counts);
    std::vector<uint8_t> expected;
    for (int64_t r = 0; r < n(); ++r) {
      const int64_t count = counts[static_cast<size_t>(r)];
      append_run(expected, pattern(dtype, r, count), 0, count);
    }
    EXPECT_EQ(bytes_of(output), expected);
  });
}

TEST_P(CollectivesTest, AllToAllExchangesRuns) {
  for_each_case([this](const auto& comm, auto dtype, const auto& counts) {
    // Rank s sends counts[(s + d) % n] elements to rank d.
    const auto sent = [&](int64_t s) {
      Counts result;
      for (int64_t d = 0; d < n(); ++d) {
        result.push_back(counts[static_cast<size_t>((s + d) % n())]);
      }
      return result;
    };
    const Counts both = sent(comm.rank());  // symmetric in s and d
    const int64_t total = before(both, n());
    const at::Tensor output = at::empty({total}, dtype);
    comm.all_to_all_v(output, pattern(dtype, comm.rank(), total), both, both);
    std::vector<uint8_t> expected;
    for (int64_t s = 0; s < n(); ++s) {
      append_run(
          expected, pattern(dtype, s, total), before(sent(s), comm.rank()),
          sent(s)[static_cast<size_t>(comm.rank())]);
    }
    EXPECT_EQ(bytes_of(output), expected);
  });
}

TEST_P(CollectivesTest, BroadcastCopiesTheRoot) {
  for_each_case([this](const auto& comm, auto dtype, const auto& counts) {
    for (int64_t root = 0; root < n(); ++root) {
      const at::Tensor tensor = pattern(dtype, comm.rank(), counts[0]);
      comm.broadcast(tensor, root);
      EXPECT_EQ(bytes_of(tensor), bytes_of(pattern(dtype, root, counts[0])));
    }
  });
}

TEST_P(CollectivesTest, ScatterCutsTheRoot) {
  for_each_case([this](const auto& comm, auto dtype, const auto& counts) {
    for (int64_t root = 0; root < n(); root += 3) {
      const int64_t mine = counts[static_cast<size_t>(comm.rank())];
      const at::Tensor whole = pattern(dtype, root, before(counts, n()));
      const at::Tensor output = at::empty({mine}, dtype);
      comm.scatter_v(
          output, comm.rank() == root ? whole : at::Tensor(), counts, root);
      std::vector<uint8_t> expected;
      append_run(expected, whole, before(counts, comm.rank()), mine);
      EXPECT_EQ(bytes_of(output), expected);
    }
  });
}

TEST_P(CollectivesTest, GatherConcatenatesOnTheRoot) {
  for_each_case([this](const auto& comm, auto dtype, const auto& counts) {
    for (int64_t root = 0; root < n(); root += 3) {
      const int64_t mine = counts[static_cast<size_t>(comm.rank())];
      const bool is_root = comm.rank() == root;
      const at::Tensor output =
          is_root ? at::empty({before(counts, n())}, dtype) : at::Tensor();
      comm.gather_v(output, pattern(dtype, comm.rank(), mine), counts, root);
      std::vector<uint8_t> expected;
      for (int64_t r = 0; r < n(); ++r) {
        const int64_t count = counts[static_cast<size_t>(r)];
        append_run(expected, pattern(dtype, r, count), 0, count);
      }
      EXPECT_TRUE(!is_root || bytes_of(output) == expected);
    }
  });
}

TEST_P(CollectivesTest, SendReachesTheReceiver) {
  for_each_case([this](const auto& comm, auto dtype, const auto& counts) {
    const int64_t next = (comm.rank() + 1) % n();
    const int64_t previous = (comm.rank() + n() - 1) % n();
    const at::Tensor output = at::empty({counts[0]}, dtype);
    Communicator::Work work =
        comm.send_async(pattern(dtype, comm.rank(), counts[0]), next);
    comm.recv(output, previous);
    work.wait();
    EXPECT_EQ(bytes_of(output), bytes_of(pattern(dtype, previous, counts[0])));
  });
}

INSTANTIATE_TEST_SUITE_P(
    Ranks, CollectivesTest, testing::Range(1, 9),
    [](const auto& ranks) { return std::to_string(ranks.param); });

}  // namespace
}  // namespace tessera
