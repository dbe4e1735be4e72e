// A rank adds numbers beyond the largest. An UndefinedBehaviorSanitizer build
// must report it.
#include <tessera/comm/world.h>

#include <iostream>
#include <limits>

int main() {
  tessera::run_ranks(2, [] {
    volatile int64_t largest = std::numeric_limits<int64_t>::max();
    const int64_t beyond = largest + tessera::rank() + 1;
    std::cout << beyond << "\n";
  });
  std::cout << "ran to the end\n";
  return 0;
}
