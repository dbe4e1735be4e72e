// libFuzzer target: whatever bytes are read, the outcome is a ValueError or a
// value that is written again as it was read. scripts/fuzz.sh builds and runs
// it.
//
// The first byte of an input chooses: a whole saved value, or the payload of a
// kind, which gets a frame with a good checksum. With "--seed FOLDER" the
// program writes the examples to start from. Compiled with
// TESSERA_PLANTED_FAULT it has a fault for the fuzzer to find.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <vector>

#include <c10/util/Exception.h>

#include "sharded_tensor/format/codec.h"
#include "sharded_tensor/format/saved_examples.h"

namespace {

using namespace tessera::
    sharded_tensor;  // NOLINT(google-build-using-namespace)

#ifdef TESSERA_PLANTED_FAULT
std::set<std::string> example_texts() {
  std::set<std::string> texts;
  for (const Saved& saved : saved_examples()) {
    texts.emplace(saved.text);
  }
  return texts;
}

// Reads a value that no example shows one byte too far: to find it, the fuzzer
// must make values that are accepted, and AddressSanitizer must watch.
void read_too_far(std::string_view saved) {
  static const std::set<std::string> known = example_texts();
  if (known.count(std::string(saved)) == 0) {
    const std::vector<char> copy(saved.begin(), saved.end());
    const volatile char* end = copy.data() + copy.size();
    static_cast<void>(*end);
  }
}
#endif

void require_fixed_point(const SavedKind& kind, std::string_view saved) {
  std::string written;
  try {
    written = kind.rewrite(saved);
  } catch (const c10::ValueError&) {
    return;  // Any other error ends the program.
  }
  if (written != saved) {
    std::fprintf(
        stderr, "%s is written otherwise than it was read\n", kind.name);
    std::abort();
  }
#ifdef TESSERA_PLANTED_FAULT
  read_too_far(saved);
#endif
}

format::Kind kind_at(size_t i) {
  return static_cast<format::Kind>(i + 1);
}

void write_seeds(const std::filesystem::path& folder) {
  int number = 0;
  const auto write = [&](char choice, std::string_view text) {
    std::ofstream out(folder / std::to_string(number++), std::ios::binary);
    out << choice << text;
  };
  for (const Saved& saved : saved_examples()) {
    write('\0', saved.text);
    const std::string_view payload =
        format::unframe(kind_at(saved.kind), saved.text);
    write(static_cast<char>(saved.kind + 1), payload);
  }
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* count, char*** arguments) {
  if (*count == 3 && std::string_view((*arguments)[1]) == "--seed") {
    write_seeds((*arguments)[2]);
    std::exit(0);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) {
    return 0;
  }
  const size_t choice = data[0] % (saved_kinds().size() + 1);
  const std::string_view rest(
      reinterpret_cast<const char*>(data) + 1, size - 1);
  if (choice > 0) {
    const std::string framed = format::frame(kind_at(choice - 1), rest);
    require_fixed_point(saved_kinds()[choice - 1], framed);
    return 0;
  }
  for (const SavedKind& kind : saved_kinds()) {
    require_fixed_point(kind, rest);
  }
  return 0;
}
