// A program as `tessera run` starts them: adds the ranks up and prints the sum;
// with an argument, the rank of that number throws.
#include <c10/util/Exception.h>

#include <ATen/ops/full.h>
#include <cstdio>
#include <cstdlib>

#include <tessera/comm/world.h>

int main(int argc, char** argv) {
  const int64_t bad_rank = argc > 1 ? std::atoi(argv[1]) : -1;
  try {
    tessera::run([bad_rank] {
      TORCH_CHECK(tessera::rank() != bad_rank, "planted failure");
      at::Tensor sum = at::full({1}, static_cast<double>(tessera::rank()));
      tessera::init().communicator().all_reduce(sum);
      if (tessera::rank() == 0) {
        std::printf(
            "%d ranks, sum %g, engine %s\n",
            static_cast<int>(tessera::world_size()), sum.item<double>(),
            tessera::init().engine().c_str());
      }
    });
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "%s\n", error.what_without_backtrace());
    return 3;
  }
  return 0;
}
