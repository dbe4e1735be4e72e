// Two ranks write one number without order. A ThreadSanitizer build must report
// it; a build that does not is blind, and its other results mean nothing.
#include <tessera/comm/world.h>

#include <iostream>

int main() {
  int64_t shared = 0;
  tessera::run_ranks(2, [&] {
    // Long enough that both ranks are at it together: where one ends before the
    // other begins, the engine's lock puts them in order and there is no race.
    tessera::init().communicator().barrier();
    for (int i = 0; i < 1000000; ++i) {
      shared += tessera::rank() + 1;
    }
  });
  std::cout << "ran to the end, " << shared << "\n";
  return 0;
}
