// Ranks that share one accelerator, each on a stream of its own: every
// collective against the same one on host tensors. Skipped without a device.
#include <gtest/gtest.h>
#include <tessera/comm/world.h>

#include <ATen/Context.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "harness/ranks.h"

namespace tessera {
namespace {

using harness::run_ranks;

constexpr int kRanks = 4;
const c10::Device kDevice(at::kCUDA, 0);

bool has_device() {
  return at::globalContext().hasCUDA();
}

// Integers small enough to be exact in every dtype, distinct per rank.
at::Tensor values(int64_t rank, int64_t count, at::ScalarType dtype) {
  return at::arange(count, at::kLong)
      .add_(5 * rank)
      .remainder_(4)
      .add_(1)
      .to(dtype);
}

// Runs the body on host tensors and on the device and compares what it returns.
void compare(
    const std::function<at::Tensor(const Communicator&, c10::Device)>& body) {
  run_ranks(kRanks, [&] {
    const Communicator comm = init().communicator();
    const c10::impl::VirtualGuardImpl guard(at::kCUDA);
    const c10::StreamGuard stream(guard.getNewStream(kDevice));
    for (int trial = 0; trial < 5; ++trial) {
      const at::Tensor wanted = body(comm, at::kCPU);
      const at::Tensor got = body(comm, kDevice).cpu();
      EXPECT_TRUE(at::equal(wanted, got)) << "rank " << comm.rank();
    }
  });
}

class AcceleratorTest : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override {
    if (!has_device()) {
      GTEST_SKIP() << "no accelerator";
    }
  }
};

TEST_P(AcceleratorTest, MovesAsOnTheHost) {
  const at::ScalarType dtype = GetParam();
  for (const int64_t count : {0, 3, 100000}) {
    compare([=](const Communicator& comm, c10::Device device) {
      const at::Tensor input =
          values(comm.rank(), kRanks * count, dtype).to(device);
      const auto options = input.options();
      const at::Tensor gathered = at::empty({kRanks * kRanks * count}, options);
      comm.all_gather(gathered, input);
      const at::Tensor exchanged = at::empty({kRanks * count}, options);
      comm.all_to_all(exchanged, input);
      const at::Tensor part = at::empty({count}, options);
      comm.scatter(part, input, 2);
      const at::Tensor whole = at::empty({kRanks * count}, options);
      comm.gather(whole, part, 1);
      comm.broadcast(whole, 1);
      const at::Tensor received = at::empty({count}, options);
      Communicator::Work work =
          comm.send_async(part, (comm.rank() + 1) % kRanks);
      comm.recv(received, (comm.rank() + kRanks - 1) % kRanks);
      work.wait();
      return at::cat({gathered, exchanged, part, whole, received});
    });
  }
}

TEST_P(AcceleratorTest, ReducesAsOnTheHost) {
  const at::ScalarType dtype = GetParam();
  for (const ReduceOp op :
       {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax, ReduceOp::kMin,
        ReduceOp::kProduct}) {
    const bool integral = c10::isIntegralType(dtype, /*includeBool=*/true);
    const bool complex = c10::isComplexType(dtype);
    if ((op == ReduceOp::kAvg && integral) ||
        ((op == ReduceOp::kMax || op == ReduceOp::kMin) && complex)) {
      continue;
    }
    for (const int64_t count : {0, 3, 100000}) {
      compare([=](const Communicator& comm, c10::Device device) {
        const at::Tensor input =
            values(comm.rank(), kRanks * count, dtype).to(device);
        const at::Tensor part = at::empty({count}, input.options());
        comm.reduce_scatter(part, input, op);
        Communicator::Work work = comm.all_reduce_async(input, op);
        work.wait();
        return at::cat({part, input});
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Dtypes, AcceleratorTest,
    testing::Values(
        at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kInt,
        at::kShort, at::kByte, at::kBool, at::kUInt16, at::kComplexFloat),
    [](const auto& dtype) { return std::string(c10::toString(dtype.param)); });

}  // namespace
}  // namespace tessera
