// What the fuzz targets of readers share: a reader throws io::Error or accepts.
// scripts/fuzz_io.sh builds and runs them.
//
// Compiled with TESSERA_PLANTED_FAULT, each has a fault for the fuzzer to find:
// an input that is accepted, and that no seed is like, is read one byte too
// far. To find it, the fuzzer must make inputs that the reader accepts, and
// AddressSanitizer must watch.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <io/files/error.h>

namespace tessera::io_test {

/// Ends the program: the fuzzer takes that for a failure.
[[noreturn]] inline void fail(const char* problem) {
  std::fprintf(stderr, "%s\n", problem);
  std::abort();
}

/// Calls a reader; tells whether it accepted. Any error but io::Error ends the
/// program.
template <typename Read>
bool accepts(const Read& read) {
  try {
    read();
    return true;
  } catch (const io::Error&) {
    return false;
  }
}

/// Where the planted fault is compiled in, reads an accepted input too far. The
/// first byte of an input chooses what is read, modulo 4; seeds have 0 to 2.
inline void read_too_far([[maybe_unused]] std::string_view input) {
#ifdef TESSERA_PLANTED_FAULT
  if (!input.empty() && static_cast<uint8_t>(input[0]) % 4 == 3) {
    const std::vector<char> copy(input.begin(), input.end());
    const volatile char* end = copy.data() + copy.size();
    static_cast<void>(*end);
  }
#endif
}

inline std::string_view view_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

}  // namespace tessera::io_test
