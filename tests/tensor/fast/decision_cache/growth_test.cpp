// What is kept about calls stays bounded.
#include <harness/sharded_test.h>

#include <fstream>

namespace tessera {
namespace {

using testing::close;
using testing::distinct;
using testing::f64;
using testing::mesh_of;

int64_t resident_kilobytes() {
  std::ifstream file("/proc/self/status");
  std::string word;
  int64_t value = 0;
  while (file >> word) {
    if (word == "VmRSS:" && file >> value) {
      return value;
    }
  }
  return 0;
}

struct Figures {
  size_t decisions = 0;
  size_t plans = 0;
  size_t specs = 0;
  int64_t kilobytes = 0;
};

// Of rank 0, while nothing moves anywhere.
Figures figures() {
  init().communicator().barrier();
  const Figures now{
      cached_decision_count(), cached_plan_count(), DTensorSpec::live_count(),
      resident_kilobytes()};
  init().communicator().barrier();
  return now;
}

// A step of a decoder whose sequence is `length` long: forward and backward.
at::Tensor decode(
    int64_t length, const DeviceMesh& mesh, const at::Tensor& weight) {
  auto x = testing::distinct({length, 4});
  auto cut =
      distribute_tensor(x, mesh, {Shard(0)}, {.src_data_rank = std::nullopt});
  cut.set_requires_grad(true);
  const auto scores = cut.mm(weight).softmax(1).mul(cut);
  scores.sum().backward();
  return cut.grad();
}

at::Tensor decode_plain(int64_t length) {
  auto x = testing::distinct({length, 4}).requires_grad_();
  x.mm(distinct({4, 4})).softmax(1).mul(x).sum().backward();
  return x.grad();
}

// Plans are dropped together when there are 1024, so that specs rise and fall;
// what counts is how high. Each of these lengths has a plan of its own.
constexpr int64_t kLengths = 1'200;

// The most of each in a run over lengths after `from`.
Figures most_over(
    int64_t from, const DeviceMesh& mesh, const at::Tensor& weight) {
  Figures most;
  for (int64_t length = from + 1; length <= from + kLengths; ++length) {
    const at::Tensor got = decode(length, mesh, weight);
    if (length % 50 == 1) {
      EXPECT_TRUE(close(got, decode_plain(length))) << length;
    }
    if (length % 10 == 0) {
      const Figures now = figures();
      most.decisions = std::max(most.decisions, now.decisions);
      most.plans = std::max(most.plans, now.plans);
      most.specs = std::max(most.specs, now.specs);
    }
  }
  return most;
}

TEST(DecisionCache, StaysBoundedOverThousandsOfLengths) {
  const size_t before = DTensorSpec::live_count();
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto weight =
        distribute_tensor(distinct({4, 4}), mesh, {Replicate()});
    const Figures first = most_over(0, mesh, weight);
    const Figures second = most_over(kLengths, mesh, weight);
    EXPECT_LE(second.decisions, 2048U);
    EXPECT_LE(second.plans, 1024U);
    EXPECT_LE(second.specs, first.specs + first.specs / 10);
    if (rank() == 0) {
      std::cout << "at most: decisions " << first.decisions << ", then "
                << second.decisions << "; plans " << first.plans << ", then "
                << second.plans << "; specs " << first.specs << ", then "
                << second.specs << '\n';
    }
    // Old and new lengths, met again, are right.
    for (const int64_t length : {7, 2400, 1200, 7}) {
      ASSERT_TRUE(close(decode(length, mesh, weight), decode_plain(length)));
    }
  });
  EXPECT_LE(DTensorSpec::live_count(), before) << "threads take theirs along";
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int64_t kRepeats = 20'000;  // a tenth fills the cache
constexpr bool kKeepsFreedMemory = true;
#else
constexpr int64_t kRepeats = 100'000;
constexpr bool kKeepsFreedMemory = false;
#endif

TEST(DecisionCache, GrowsNothingOverManyRepeatsOfAStep) {
  run_ranks(2, [&] {
    const auto mesh = mesh_of({2});
    const auto x = distribute_tensor(distinct({4, 4}), mesh, {Shard(0)});
    auto w = distribute_tensor(distinct({4, 4}), mesh, {Replicate()});
    auto state = zeros({4, 4}, mesh, {Shard(0)}, f64());
    // Scalars that differ at every step, as rates and corrections do.
    const auto step = [&](int64_t i) {
      const at::Tensor y = x.mm(w).relu();
      state.mul_(0.5).add_(y, 1.0 / static_cast<double>(i + 1));
      state.addcdiv_(y, y.abs().add(1.0 + 1e-6 * static_cast<double>(i)), 1e-3);
    };
    for (int64_t i = 0; i < kRepeats / 10; ++i) {
      step(i);
    }
    const Figures early = figures();
    for (int64_t i = kRepeats / 10; i < kRepeats; ++i) {
      step(i);
    }
    const Figures late = figures();
    EXPECT_EQ(late.decisions, early.decisions);
    EXPECT_EQ(late.plans, early.plans);
    EXPECT_EQ(late.specs, early.specs);
    if (!kKeepsFreedMemory) {
      EXPECT_LE(late.kilobytes, early.kilobytes + 2048);
    }
  });
}

}  // namespace
}  // namespace tessera
