// Calls collectives until something fails; prints its process id first.
#include <c10/util/Exception.h>
#include <tessera/comm/world.h>
#include <unistd.h>

#include <cstdio>

#include <ATen/ops/zeros.h>

int main() {
  try {
    tessera::run([] {
      const tessera::Communicator all = tessera::init().communicator();
      all.barrier();
      std::printf(
          "rank %d is process %d\n", static_cast<int>(all.rank()),
          static_cast<int>(getpid()));
      std::fflush(stdout);
      for (;;) {
        all.all_reduce(at::zeros({1000}));
      }
    });
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "%s\n", error.what_without_backtrace());
    return 3;
  }
  return 0;
}
