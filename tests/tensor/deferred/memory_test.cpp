// What a rank holds while a model is made under a DeferredInit and placed.
#include <harness/counting_allocator.h>

#include <cstdlib>
#include <fstream>

#include <harness/ranks.h>

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
  int64_t resident = 0;  // more than before, at most, in this process
};

// What the system says of this process, in bytes.
int64_t process_bytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word && word != name + ":") {
  }
  int64_t kibibytes = 0;
  status >> kibibytes;
  return kibibytes << 10;
}

// Compares the shards with those of a model that is made whole, on one rank
// after the other.
void expect_values_of_whole(
    const gpt::Gpt& model, const gpt::Sizes& sizes, const DeviceMesh& mesh) {
  for (int64_t r = 0; r < mesh.size(); ++r) {
    manual_seed(0);
    init().communicator().barrier();
    if (r != rank()) {
      continue;
    }
    manual_seed(7);
    const ReplicatedRandom equal;
    const gpt::Gpt whole(sizes);
    const auto mine = model->parameters();
    const auto all = whole->parameters();
    for (size_t i = 0; i < mine.size(); ++i) {
      const auto cut = distribute_tensor(
          all[i].detach(), mesh, placements(mine[i]),
          {.src_data_rank = std::nullopt});
      EXPECT_TRUE(at::equal(to_local(mine[i].detach()), to_local(cut))) << i;
    }
  }
  manual_seed(0);
  init().communicator().barrier();
}

Held place_deferred(const gpt::Sizes& sizes, const DeviceMesh& mesh) {
  CountingAllocator::Count& count = CountingAllocator::of_rank();
  const int64_t before = count.live;
  count.peak = before;
  count.largest = 0;
  manual_seed(7);
  gpt::Gpt model = [&] {
    const DeferredInit later;
    return gpt::Gpt(sizes);
  }();
  Held held;
  held.model = bytes_of(model->parameters(), false);
  std::ofstream("/proc/self/clear_refs") << "5";  // the peak begins anew
  const int64_t resident = process_bytes("VmRSS");
  const CommLog log;
  parallelize_module(*model, mesh, gpt_plan());
  held.peak = count.peak - before;
  held.largest = count.largest;
  held.resident = process_bytes("VmHWM") - resident;
  held.shards = bytes_of(model->parameters(), true);
  held.collectives = log.count();
  expect_values_of_whole(model, sizes, mesh);
  return held;
}

// What small things take: indices, the answers to questions of the dispatcher.
constexpr int64_t kSlack = 64 << 10;
// What the system counts beside: code, stacks, rounded sizes.
constexpr int64_t kProcessSlack = 24 << 20;

void expect_no_whole_model(const gpt::Sizes& sizes) {
  const testing::WithCounts counts;
  run_ranks(4, [&] {
    const Held held = place_deferred(sizes, mesh_of({4}, {"tp"}));
    EXPECT_EQ(held.collectives, 0);
    EXPECT_LE(held.peak, held.shards + kSlack);
    EXPECT_LE(held.shards, held.model / 4 + held.model / 20);
    EXPECT_GE(held.shards, held.model / 4);
    if (harness::on_processes()) {
      EXPECT_LE(held.resident, held.shards + kProcessSlack);
    }
    if (rank() == 0) {
      std::cout << "model " << held.model << " bytes; rank 0 holds "
                << held.shards << ", at most " << held.peak
                << " while it was made, " << held.largest
                << " in one piece; the process grew by " << held.resident
                << '\n';
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

// Of each initialiser that needs no tensor whole: what a rank makes of it.
TEST(DeferredMemory, OfInitialisersIsThatOfTheShard) {
  if (testing::device() != at::kCPU) {
    GTEST_SKIP() << "counts the memory of the CPU";
  }
  namespace init = torch::nn::init;
  const std::vector<std::pair<const char*, void (*)(at::Tensor)>> all = {
      {"uniform_", [](at::Tensor t) { init::uniform_(std::move(t)); }},
      {"normal_", [](at::Tensor t) { init::normal_(std::move(t)); }},
      {"constant_", [](at::Tensor t) { init::constant_(std::move(t), 2); }},
      {"kaiming_normal_",
       [](at::Tensor t) { init::kaiming_normal_(std::move(t)); }},
      {"xavier_uniform_",
       [](at::Tensor t) { init::xavier_uniform_(std::move(t)); }},
      {"eye_", [](at::Tensor t) { init::eye_(std::move(t)); }},
      {"slice", [](at::Tensor t) { t.zero_().narrow(0, 3, 90).fill_(1); }},
  };
  constexpr int64_t kSize = 512;
  const testing::WithCounts counts;
  run_ranks(4, [&] {
    const auto mesh = mesh_of({4});
    for (const auto& [name, fill] : all) {
      CountingAllocator::Count& count = CountingAllocator::of_rank();
      const int64_t before = count.live;
      count.peak = before;
      const at::Tensor t = [&, fill = fill] {
        const DeferredInit later;
        const at::Tensor made = torch::empty({kSize, kSize}, torch::kFloat);
        fill(made);
        return made;
      }();
      make_dtensor_(t, mesh, {Shard(0)});
      EXPECT_LE(count.peak - before, kSize * kSize + kSlack) << name;
      EXPECT_GE(count.peak - before, kSize * kSize) << name;
    }
  });
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
