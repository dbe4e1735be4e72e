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
#include <filesystem>
#include <fstream>
#include <set>
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

#ifdef TESSERA_PLANTED_FAULT
/// The inputs that the fuzzer begins with, without their first bytes.
inline std::set<std::string>& seeds() {
  static std::set<std::string> seeds;
  return seeds;
}
#endif

/// Where the planted fault is compiled in, reads an accepted input too far that
/// is none of the seeds.
inline void read_too_far([[maybe_unused]] std::string_view input) {
#ifdef TESSERA_PLANTED_FAULT
  if (seeds().count(std::string(input.substr(1))) == 0) {
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

#ifdef TESSERA_PLANTED_FAULT
// The folders of the command line hold the seeds.
extern "C" int LLVMFuzzerInitialize(int* count, char*** arguments) {
  for (int i = 1; i < *count; ++i) {
    if (!std::filesystem::is_directory((*arguments)[i])) {
      continue;
    }
    for (const auto& file :
         std::filesystem::directory_iterator((*arguments)[i])) {
      std::ifstream in(file.path(), std::ios::binary);
      const std::string text{std::istreambuf_iterator<char>(in), {}};
      tessera::io_test::seeds().insert(text.substr(1));
    }
  }
  return 0;
}
#endif
