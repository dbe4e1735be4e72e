// A rank reads behind the end of its memory. An AddressSanitizer build must
// report it.
#include <tessera/comm/world.h>

#include <iostream>
#include <vector>

int main() {
  tessera::run_ranks(2, [] {
    const std::vector<int64_t> owned(static_cast<size_t>(tessera::rank()) + 3);
    const volatile int64_t* end = owned.data() + owned.size();
    const int64_t behind = *end;
    std::cout << behind << "\n";
  });
  std::cout << "ran to the end\n";
  return 0;
}
