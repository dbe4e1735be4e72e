// A program for walk_test.py: a product of sharded matrices that is decided,
// and one that was met before, each inside a function that callgrind can be
// told of. Each has a process of its own, forked, since loading LibTorch is
// most of what valgrind does. Results are kept until the functions have
// returned.
#include <tessera/comm/world.h>
#include <tessera/tensor/dtensor.h>
#include <tessera/tensor/factories.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <string_view>

#include <ATen/ops/add.h>
#include <ATen/ops/mm.h>

extern "C" {

__attribute__((noinline)) void walk(
    const at::Tensor& a, const at::Tensor& b, at::Tensor& result) {
  result = at::mm(a, b);
}

}  // extern "C"

namespace {

void call(bool first) {
  tessera::run_simulated({.rank = 0, .size = 2}, [&] {
    const auto mesh = tessera::init_device_mesh(at::kCPU, {2});
    const at::Tensor a = tessera::ones({8, 8}, mesh, {tessera::Shard(0)});
    const at::Tensor b = tessera::ones({8, 8}, mesh, {tessera::Replicate()});
    // What the first call of any operator does once is not part of the walk.
    at::Tensor result = at::add(a, a);
    for (int i = 0; !first && i < 3; ++i) {
      result = at::mm(a, b);
    }
    at::Tensor kept;
    walk(a, b, kept);
  });
}

}  // namespace

int main() {
  for (const char* name : {"first", "cached"}) {
    const pid_t child = fork();
    if (child == 0) {
      call(std::string_view(name) == "first");
      return 0;
    }
    int status = -1;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
      std::fprintf(stderr, "the %s call failed\n", name);
      return 1;
    }
    std::printf("%s %d\n", name, static_cast<int>(child));
    std::fflush(stdout);
  }
}
