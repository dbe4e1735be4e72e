// Two ranks write one number without order. A ThreadSanitizer build must report
// it; a build that does not is blind, and its other results mean nothing.
#include <tessera/comm/world.h>

#include <iostream>

int main() {
  int64_t shared = 0;
  tessera::run_ranks(2, [&] {
    for (int i = 0; i < 1000; ++i) {
      shared += tessera::rank() + 1;
    }
    tessera::init().communicator().barrier();
  });
  std::cout << "ran to the end, " << shared << "\n";
  return 0;
}
