// A program for callgrind_test.py: cached calls of add_ on a plain tensor and
// on a sharded one, each kind inside a function that callgrind can be told of.
#include <tessera/comm/world.h>
#include <tessera/tensor/dtensor.h>
#include <tessera/tensor/factories.h>

#include <cstdio>
#include <cstdlib>

#include <ATen/ops/ones.h>

extern "C" {

__attribute__((noinline)) void count_plain(
    const at::Tensor& a, const at::Tensor& b, int calls) {
  for (int i = 0; i < calls; ++i) {
    a.add_(b);
  }
}

__attribute__((noinline)) void count_sharded(
    const at::Tensor& a, const at::Tensor& b, int calls) {
  for (int i = 0; i < calls; ++i) {
    a.add_(b);
  }
  // Keeps the two functions apart for the linker.
  std::fflush(nullptr);
}

}  // extern "C"

namespace {

constexpr int kWarmUp = 20;

void warm_up(const at::Tensor& a, const at::Tensor& b) {
  for (int i = 0; i < kWarmUp; ++i) {
    a.add_(b);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int calls = argc > 1 ? std::atoi(argv[1]) : 1;
  // One rank of two without the other: add_ does not talk to it.
  tessera::run_simulated({.rank = 0, .size = 2}, [calls] {
    const auto mesh = tessera::init_device_mesh(at::kCPU, {2});
    const at::Tensor a = tessera::ones({8, 8}, mesh, {tessera::Shard(0)});
    const at::Tensor b = tessera::ones({8, 8}, mesh, {tessera::Shard(0)});
    const at::Tensor plain_a = at::ones({4, 8});
    const at::Tensor plain_b = at::ones({4, 8});
    warm_up(plain_a, plain_b);
    count_plain(plain_a, plain_b, calls);
    warm_up(a, b);
    count_sharded(a, b, calls);
  });
}
