// What only the MPI engine does: long messages in pieces, equal tags. Run by
// mpirun on two processes; elsewhere the tests are skipped. The engine reads
// its limits from TESSERA_MPI_MESSAGE (bytes) and TESSERA_MPI_TAGS (how many).
#include <gtest/gtest.h>
#include <tessera/comm/world.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include "comm/expect_error.h"

namespace tessera {
namespace {

bool has_two_ranks() {
  return init().engine() == "mpi" && init().size() == 2;
}

class MpiTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_two_ranks()) {
      GTEST_SKIP() << "needs mpirun -n 2";
    }
  }
};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// With TESSERA_MPI_MESSAGE=1000, some 800 pieces.
TEST_F(MpiTest, MessagesBeyondTheLimitGoInPieces) {
  const Communicator all = init().communicator();
  const auto values = [](int64_t rank) {
    return at::arange(100'003) + rank * 1'000'000;
  };
  const at::Tensor output = at::empty({200'006}, at::kLong);
  all.all_gather(output, values(rank()));
  for (int64_t r = 0; r < 2; ++r) {
    EXPECT_TRUE(output.narrow(0, r * 100'003, 100'003).equal(values(r)));
  }
  const at::Tensor sum = values(rank());
  all.all_reduce(sum);
  EXPECT_TRUE(sum.equal(values(0) + values(1)));
}

// All groups have one tag here. Rank 0 starts calls of two at once.
TEST_F(MpiTest, TransfersOfEqualTagsAreRefused) {
  if (variable("TESSERA_MPI_TAGS") != "1") {
    GTEST_SKIP() << "set TESSERA_MPI_TAGS=1";
  }
  const Communicator first = init().communicator({0, 1});
  const Communicator second = init().communicator({1, 0});
  if (rank() == 1) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
  const at::Tensor a = at::full({1}, 1.0);
  const at::Tensor b = at::full({1}, 1.0);
  Communicator::Work pending = first.all_reduce_async(a);
  if (rank() == 0) {
    expect_parts(
        error_of([&] { second.all_reduce(b); }),
        {"all_reduce(f32[1], sum) on group {1, 0}, rank 0",
         "two transfers under way have the same MPI tag"});
  }
  pending.wait();
  EXPECT_EQ(a.item<float>(), 2.0F);
  if (rank() == 1) {
    expect_parts(
        error_of([&] { second.all_reduce(b); }),
        {"group {1, 0}, rank 1", "the same MPI tag"});
  } else {
    // Rank 1 makes its call while this rank is there. No barrier: it would have
    // the tag of that call, of which a message may be under way still.
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
}

// 2.2 GiB from each rank: more bytes than an int counts, in all pieces.
TEST_F(MpiTest, CountsBeyond31BitsWork) {
  if (variable("TESSERA_LONG").empty() ||
      !variable("TESSERA_MPI_MESSAGE").empty()) {
    GTEST_SKIP() << "set TESSERA_LONG=1 and no TESSERA_MPI_MESSAGE";
  }
  constexpr int64_t kBytes = 2'362'232'012;
  const Communicator all = init().communicator();
  const at::Tensor input =
      at::full({kBytes}, static_cast<int64_t>(1 + rank()), at::kByte);
  input[kBytes - 1] = 100 + rank();
  const at::Tensor output = at::empty({2 * kBytes}, at::kByte);
  all.all_gather(output, input);
  for (int64_t r = 0; r < 2; ++r) {
    const at::Tensor run = output.narrow(0, r * kBytes, kBytes);
    EXPECT_EQ(run[kBytes - 1].item<int64_t>(), 100 + r);
    EXPECT_EQ(run[kBytes - 2].item<int64_t>(), 1 + r);
    EXPECT_TRUE(run.narrow(0, 0, kBytes - 1).eq(1 + r).all().item<bool>());
  }
}

}  // namespace
}  // namespace tessera
