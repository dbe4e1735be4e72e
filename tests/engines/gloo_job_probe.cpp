// A rank of a job over Gloo, started by hand: sums rank + 1, prints the sum,
// and ends when its input does. The argument is the deadline in ms.
#include <cstdio>
#include <cstdlib>

#include <ATen/ops/full.h>
#include <c10/util/Exception.h>
#include <tessera/comm/world.h>

int main(int /*argc*/, char** argv) {
  try {
    const tessera::World world = tessera::init(
        {.engine = tessera::Engine::kC10d,
         .deadline = std::chrono::milliseconds(std::atoi(argv[1]))});
    at::Tensor sum = at::full({1}, static_cast<double>(world.rank() + 1));
    world.communicator().all_reduce(sum);
    std::printf(
        "sum %g of %d\n", sum.item<double>(), static_cast<int>(world.size()));
    std::fflush(stdout);
    while (std::getchar() != EOF) {
    }
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "%s\n", error.what_without_backtrace());
    return 3;
  }
  return 0;
}
