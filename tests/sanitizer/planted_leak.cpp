// A rank loses memory. An AddressSanitizer build must report it at exit.
#include <tessera/comm/world.h>

#include <iostream>

namespace {
int64_t* volatile lost = nullptr;
}  // namespace

int main() {
  tessera::run_ranks(2, [] {
    if (tessera::rank() == 1) {
      lost = new int64_t[1000];
      lost = nullptr;
    }
    tessera::init().communicator().barrier();
  });
  std::cout << "ran to the end\n";
  return 0;
}
