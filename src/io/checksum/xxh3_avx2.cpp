// Compiled with -mavx2 (src/CMakeLists.txt): no header of the C++ library that
// has functions, which the linker could take for all other files.
#include <io/checksum/xxh3_avx2.h>

#define XXH_INLINE_ALL  // NOLINT(readability-identifier-naming): its own
#include <xxhash.h>

namespace tessera::detail::inline io_layer {

uint64_t xxh3_avx2(const void* bytes, size_t size) {
  return XXH3_64bits(bytes, size);
}

void update_xxh3_avx2(void* state, const void* bytes, size_t size) {
  XXH3_64bits_update(static_cast<XXH3_state_t*>(state), bytes, size);
}

}  // namespace tessera::detail::inline io_layer
