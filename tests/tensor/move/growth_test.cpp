// Long runs leave nothing behind.
#include <fstream>

#include "tensor/move/by_definition.h"

namespace tessera {
namespace {

// A figure of /proc/self/status, e.g. VmRSS in kB; 0 where there is none.
int64_t status(const std::string& name) {
  std::ifstream file("/proc/self/status");
  std::string word;
  int64_t value = 0;
  while (file >> word) {
    if (word == name + ":" && file >> value) {
      return value;
    }
  }
  return 0;
}

constexpr int64_t kSteps = 60'000 / by_definition::kSlow;

struct Figures {
  size_t specs;
  size_t plans;
  int64_t threads;
  int64_t kilobytes;
};

Figures figures() {
  return {
      DTensorSpec::live_count(), cached_plan_count(), status("Threads"),
      status("VmRSS")};
}

// One step of a program that mixes everything: shapes that come and go, two
// meshes, gradients, asynchronous moves.
void step(int64_t i, const DeviceMesh& mesh, const DeviceMesh& flat) {
  const std::vector<Placements> two{
      {Shard(0), Shard(1)},  {Replicate(), Shard(0)},
      {Shard(0), Shard(0)},  {StridedShard(0, 2), Replicate()},
      {Partial(), Shard(1)}, {Replicate(), Replicate()}};
  const auto pick = [&](int64_t k) { return two[static_cast<size_t>(k % 6)]; };
  const std::vector<int64_t> shape{3 + i % 5, 2 + i % 7};
  at::Tensor x = zeros(shape, mesh, pick(i), testing::f32());
  x.set_requires_grad(i % 3 == 0);
  const at::Tensor y = redistribute(x, pick(i / 6), {.async = i % 2 == 0});
  const at::Tensor z = i % 4 == 0 ? redistribute(y, flat, {Shard(i % 2)})
                                  : redistribute(y, pick(i / 36));
  if (i % 3 == 0) {
    redistribute(z, flat, {Replicate()}).sum().backward();
  }
}

TEST(SixtyThousandSteps, LeaveNothingBehind) {
  Figures early{};
  Figures late{};
  run_ranks(4, [&] {
    const DeviceMesh mesh = testing::mesh_of({2, 2});
    const DeviceMesh flat = testing::mesh_of({4});
    for (int64_t i = 0; i < kSteps; ++i) {
      step(i, mesh, flat);
      if (i == kSteps / 3 || i == kSteps - 1) {
        init().communicator().barrier();
        if (rank() == 0) {
          (i == kSteps / 3 ? early : late) = figures();
        }
        init().communicator().barrier();
      }
    }
  });
  std::cout << "specs " << early.specs << " -> " << late.specs << ", plans "
            << early.plans << " -> " << late.plans << ", threads "
            << early.threads << " -> " << late.threads << ", kB "
            << early.kilobytes << " -> " << late.kilobytes << '\n';
  // Plans are forgotten one by one, so which specs the kept ones hold varies.
  EXPECT_LE(late.specs, early.specs + early.specs / 20);
  EXPECT_LE(late.plans, early.plans);
  EXPECT_LE(late.threads, early.threads);
  if (by_definition::kSlow == 1) {  // sanitizers keep freed memory for a while
    EXPECT_LE(late.kilobytes, early.kilobytes + 4096);
  }
}

}  // namespace
}  // namespace tessera
