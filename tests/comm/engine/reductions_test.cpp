// Reductions against a loop over ranks written here, bit for bit.
#include <gtest/gtest.h>
#include <tessera/comm/world.h>

#include <cmath>
#include <complex>
#include <cstring>
#include <limits>

#include <ATen/ops/empty.h>
#include <c10/util/complex.h>

#include "harness/ranks.h"

namespace tessera {
namespace {

using harness::run_ranks;

using Counts = std::vector<int64_t>;

// The wide type in which T is combined, and the value of element i of rank r:
// distinct per element, small enough to be exact in every dtype.
template <typename T>
float value(int64_t rank, int64_t i) {
  const auto small = static_cast<float>((5 * rank + 3 * i) % 4 + 1);
  const bool is_signed = std::numeric_limits<T>::is_signed ||
                         !std::numeric_limits<T>::is_specialized;
  return is_signed && (rank + i) % 3 == 0 ? -small : small;
}

template <typename T>
struct Wide {
  using type = std::conditional_t<
      std::is_integral_v<T>, T,
      std::conditional_t<std::is_same_v<T, double>, double, float>>;
};

template <typename T>
T combine(ReduceOp op, T a, T b) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      return static_cast<T>(a + b);
    case ReduceOp::kProduct:
      return static_cast<T>(a * b);
    case ReduceOp::kMax:
      return a > b ? a : b;
    case ReduceOp::kMin:
      return a < b ? a : b;
  }
  return a;
}

template <typename T>
T expected(ReduceOp op, int64_t ranks, int64_t i) {
  using W = typename Wide<T>::type;
  W total = static_cast<W>(static_cast<T>(value<T>(0, i)));
  for (int64_t r = 1; r < ranks; ++r) {
    total =
        combine<W>(op, total, static_cast<W>(static_cast<T>(value<T>(r, i))));
  }
  if (op == ReduceOp::kAvg) {
    total = static_cast<W>(total / static_cast<W>(ranks));
  }
  return static_cast<T>(total);
}

template <typename T>
at::Tensor make(at::ScalarType dtype, int64_t rank, int64_t count) {
  at::Tensor tensor = at::empty({count}, dtype);
  T* data = static_cast<T*>(tensor.mutable_data_ptr());
  for (int64_t i = 0; i < count; ++i) {
    data[i] = static_cast<T>(value<T>(rank, i));
  }
  return tensor;
}

template <typename T>
void expect_equal(
    const at::Tensor& tensor, ReduceOp op, int64_t ranks, int64_t begin) {
  const T* data = static_cast<const T*>(tensor.const_data_ptr());
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    const T wanted = expected<T>(op, ranks, begin + i);
    ASSERT_EQ(std::memcmp(&data[i], &wanted, sizeof(T)), 0)
        << to_string(op) << " at " << i << " of " << tensor.dtype() << ": "
        << static_cast<double>(data[i]) << ", not "
        << static_cast<double>(wanted);
  }
}

class ReductionsTest : public testing::TestWithParam<int> {
 protected:
  template <typename T>
  void check_dtype(at::ScalarType dtype, const std::vector<ReduceOp>& ops) {
    const Communicator comm = init().communicator();
    for (const ReduceOp op : ops) {
      for (const int64_t count : {0, 1, 7, 70000}) {
        const at::Tensor tensor = make<T>(dtype, comm.rank(), count);
        comm.all_reduce(tensor, op);
        expect_equal<T>(tensor, op, comm.size(), 0);
      }
      for (const int64_t scale : {0, 1, 3000}) {
        check_reduce_scatter<T>(comm, dtype, op, scale);
      }
    }
  }

  // Rank r gets r * scale elements: uneven, and empty for rank 0.
  template <typename T>
  static void check_reduce_scatter(
      const Communicator& comm, at::ScalarType dtype, ReduceOp op,
      int64_t scale) {
    Counts counts;
    int64_t total = 0;
    int64_t begin = 0;
    for (int64_t r = 0; r < comm.size(); ++r) {
      begin += r < comm.rank() ? r * scale : 0;
      total += r * scale;
      counts.push_back(r * scale);
    }
    const at::Tensor output = at::empty({comm.rank() * scale}, dtype);
    comm.reduce_scatter_v(
        output, make<T>(dtype, comm.rank(), total), counts, op);
    expect_equal<T>(output, op, comm.size(), begin);
  }
};

const std::vector<ReduceOp> kAll = {
    ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax, ReduceOp::kMin,
    ReduceOp::kProduct};
const std::vector<ReduceOp> kNoAvg = {
    ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kProduct};

TEST_P(ReductionsTest, EveryRealDtypeCombinesInRankOrder) {
  run_ranks(GetParam(), [this] {
    check_dtype<float>(at::kFloat, kAll);
    check_dtype<double>(at::kDouble, kAll);
    check_dtype<c10::Half>(at::kHalf, kAll);
    check_dtype<c10::BFloat16>(at::kBFloat16, kAll);
    check_dtype<c10::Float8_e5m2>(at::kFloat8_e5m2, kAll);
    check_dtype<c10::Float8_e4m3fn>(at::kFloat8_e4m3fn, kAll);
    check_dtype<c10::Float8_e5m2fnuz>(at::kFloat8_e5m2fnuz, kAll);
    check_dtype<c10::Float8_e4m3fnuz>(at::kFloat8_e4m3fnuz, kAll);
    check_dtype<c10::Float8_e8m0fnu>(at::kFloat8_e8m0fnu, kAll);
    check_dtype<uint8_t>(at::kByte, kNoAvg);
    check_dtype<int8_t>(at::kChar, kNoAvg);
    check_dtype<int16_t>(at::kShort, kNoAvg);
    check_dtype<int32_t>(at::kInt, kNoAvg);
    check_dtype<int64_t>(at::kLong, kNoAvg);
    check_dtype<uint16_t>(at::kUInt16, kNoAvg);
    check_dtype<uint32_t>(at::kUInt32, kNoAvg);
    check_dtype<uint64_t>(at::kUInt64, kNoAvg);
  });
}

template <typename T>
void check_complex(at::ScalarType dtype) {
  using Wide = std::complex<
      std::conditional_t<std::is_same_v<T, double>, double, float>>;
  using Real = typename Wide::value_type;
  const Communicator comm = init().communicator();
  const auto element = [](int64_t r, int64_t i) {
    return Wide(static_cast<Real>(r + 1), static_cast<Real>(i % 3 - r));
  };
  for (const ReduceOp op :
       {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kProduct}) {
    const at::Tensor tensor = at::empty({7}, dtype);
    auto* data = static_cast<c10::complex<T>*>(tensor.mutable_data_ptr());
    for (int64_t i = 0; i < 7; ++i) {
      const Wide x = element(comm.rank(), i);
      data[i] =
          c10::complex<T>(static_cast<T>(x.real()), static_cast<T>(x.imag()));
    }
    comm.all_reduce(tensor, op);
    for (int64_t i = 0; i < 7; ++i) {
      Wide total = element(0, i);
      for (int64_t r = 1; r < comm.size(); ++r) {
        total = op == ReduceOp::kProduct ? total * element(r, i)
                                         : total + element(r, i);
      }
      if (op == ReduceOp::kAvg) {
        total /= static_cast<Real>(comm.size());
      }
      EXPECT_EQ(data[i].real(), static_cast<T>(total.real())) << to_string(op);
      EXPECT_EQ(data[i].imag(), static_cast<T>(total.imag())) << to_string(op);
    }
  }
}

TEST_P(ReductionsTest, ComplexDtypesHaveSumAvgAndProduct) {
  run_ranks(GetParam(), [] {
    check_complex<c10::Half>(at::kComplexHalf);
    check_complex<float>(at::kComplexFloat);
    check_complex<double>(at::kComplexDouble);
  });
}

TEST_P(ReductionsTest, BoolSumsToAnyAndMultipliesToAll) {
  run_ranks(GetParam(), [] {
    const Communicator comm = init().communicator();
    for (const auto& [op, any] :
         {std::pair{ReduceOp::kSum, true},
          {ReduceOp::kMax, true},
          {ReduceOp::kProduct, false},
          {ReduceOp::kMin, false}}) {
      // Element 0: true on rank 0 only; 1: false on rank 0 only; 2: always
      // true; 3: never.
      const at::Tensor tensor = at::empty({4}, at::kBool);
      bool* data = tensor.mutable_data_ptr<bool>();
      data[0] = comm.rank() == 0;
      data[1] = comm.rank() != 0;
      data[2] = true;
      data[3] = false;
      comm.all_reduce(tensor, op);
      const bool alone = comm.size() == 1;
      EXPECT_EQ(data[0], any || alone);
      EXPECT_EQ(data[1], any && !alone);
      EXPECT_TRUE(data[2]);
      EXPECT_FALSE(data[3]);
    }
  });
}

TEST_P(ReductionsTest, NanWinsMaxAndMinWhereverItIs) {
  run_ranks(GetParam(), [] {
    const Communicator comm = init().communicator();
    for (const ReduceOp op : {ReduceOp::kMax, ReduceOp::kMin}) {
      for (int64_t where = 0; where < comm.size(); ++where) {
        const at::Tensor tensor = at::empty({2}, at::kFloat);
        float* data = tensor.mutable_data_ptr<float>();
        data[0] = comm.rank() == where ? std::numeric_limits<float>::quiet_NaN()
                                       : static_cast<float>(comm.rank());
        data[1] = static_cast<float>(comm.rank());
        comm.all_reduce(tensor, op);
        EXPECT_TRUE(std::isnan(data[0]));
        EXPECT_EQ(data[1], op == ReduceOp::kMax ? comm.size() - 1 : 0);
      }
    }
  });
}

TEST_P(ReductionsTest, FloatSumsRepeatBitForBitHoweverThePartsRun) {
  run_ranks(GetParam(), [] {
    const Communicator comm = init().communicator();
    std::vector<float> first;
    for (int trial = 0; trial < 20; ++trial) {
      const at::Tensor tensor = at::empty({100003}, at::kFloat);
      float* data = tensor.mutable_data_ptr<float>();
      for (int64_t i = 0; i < tensor.numel(); ++i) {
        data[i] = std::sin(static_cast<float>(i * 7 + comm.rank() * 131)) *
                  std::pow(10.0F, static_cast<float>((i + comm.rank()) % 9));
      }
      comm.all_reduce(tensor);
      const std::vector<float> now(data, data + tensor.numel());
      if (trial == 0) {
        first = now;
      }
      ASSERT_EQ(now, first);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Ranks, ReductionsTest, testing::Range(1, 9),
    [](const auto& ranks) { return std::to_string(ranks.param); });

}  // namespace
}  // namespace tessera
