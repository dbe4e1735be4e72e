// What a rank holds while a model is made under a DeferredInit and placed.
#include <harness/counting_allocator.h>

#include <cstdlib>

#include "../../../examples/gpt.h"
#include "modules.h"

namespace tessera {
namespace {

using testing::CountingAllocator;
using testing::mesh_of;

ParallelPlan gpt_plan() {
  return {
      {"tokens", RowwiseParallel()},
      {"blocks.*.attention.[qkv]", ColwiseParallel()},
      {"blocks.*.attention.o", RowwiseParallel()},
      {"blocks.*.mlp.up", ColwiseParallel()},
      {"blocks.*.mlp.down", RowwiseParallel()},
      {"head", ColwiseParallel()}};
}

int64_t bytes_of(const std::vector<at::Tensor>& tensors, bool is_local) {
  size_t bytes = 0;
  for (const at::Tensor& t : tensors) {
    bytes += is_local ? to_local(t.detach()).nbytes()
                      : static_cast<size_t>(t.numel()) * t.element_size();
  }
  return static_cast<int64_t>(bytes);
}

struct Held {
  int64_t peak = 0;     // while the model was made and placed
  int64_t shards = 0;   // of this rank, in the end
  int64_t model = 0;    // whole
  int64_t largest = 0;  // in one piece
  int64_t collectives = 0;
};

template <class Make>
Held place_deferred(const Make& make, const DeviceMesh& mesh) {
  CountingAllocator::Count& count = CountingAllocator::of_rank();
  const int64_t before = count.live;
  count.peak = before;
  count.largest = 0;
  auto model = [&] {
    const DeferredInit later;
    return make();
  }();
  Held held;
  held.model = bytes_of(model->parameters(), false);
  const CommLog log;
  parallelize_module(*model, mesh, gpt_plan());
  held.peak = count.peak - before;
  held.largest = count.largest;
  held.shards = bytes_of(model->parameters(), true);
  held.collectives = log.count();
  return held;
}

// What small things take: indices, the answers to questions of the dispatcher.
constexpr int64_t kSlack = 64 << 10;

void expect_no_whole_model(const gpt::Sizes& sizes) {
  const testing::WithCounts counts;
  run_ranks(4, [&] {
    const Held held =
        place_deferred([&] { return gpt::Gpt(sizes); }, mesh_of({4}, {"tp"}));
    EXPECT_EQ(held.collectives, 0);
    EXPECT_LE(held.peak, held.shards + kSlack);
    EXPECT_LE(held.shards, held.model / 4 + held.model / 20);
    EXPECT_GE(held.shards, held.model / 4);
    if (rank() == 0) {
      std::cout << "model " << held.model << " bytes; rank 0 holds "
                << held.shards << ", at most " << held.peak
                << " while it was made, " << held.largest << " in one piece\n";
    }
  });
}

TEST(DeferredMemory, OfAGptIsThatOfItsShards) {
  if (testing::device() != at::kCPU) {
    GTEST_SKIP() << "counts the memory of the CPU";
  }
  expect_no_whole_model(
      {.vocabulary = 4096,
       .length = 64,
       .width = 256,
       .heads = 8,
       .hidden = 1024,
       .layers = 4});
}

TEST(DeferredMemory, OfAGptOf1GiBIsThatOfItsShards) {
  if (std::getenv("TESSERA_LONG") == nullptr || testing::device() != at::kCPU) {
    GTEST_SKIP() << "takes 1 GiB of memory; TESSERA_LONG=1 runs it";
  }
  expect_no_whole_model(
      {.vocabulary = 16384,
       .length = 512,
       .width = 1280,
       .heads = 16,
       .hidden = 5120,
       .layers = 12});
}

TEST(DeferredMemory, HoldsOneTensorWholeForOrthogonal) {
  if (testing::device() != at::kCPU) {
    GTEST_SKIP() << "counts the memory of the CPU";
  }
  constexpr int64_t kSize = 256;
  constexpr int64_t kWhole = kSize * kSize * 4;
  const testing::WithCounts counts;
  run_ranks(4, [&] {
    CountingAllocator::Count& count = CountingAllocator::of_rank();
    const int64_t before = count.live;
    count.peak = before;
    std::vector<at::Tensor> weights;
    {
      const DeferredInit later;
      for (int i = 0; i < 8; ++i) {
        weights.push_back(torch::nn::init::orthogonal_(
            torch::empty({kSize, kSize}, torch::kFloat)));
      }
    }
    const auto mesh = mesh_of({4});
    for (const at::Tensor& weight : weights) {
      make_dtensor_(weight, mesh, {Shard(0)});
    }
    // The numbers, their factors and what the factorisation works in.
    const int64_t shards = 8 * kWhole / 4;
    EXPECT_LE(count.peak - before, shards + 6 * kWhole);
    EXPECT_LE(count.live - before, shards + kSlack);
  });
}

}  // namespace
}  // namespace tessera
