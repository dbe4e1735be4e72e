// Manifests of our own format: as they are, and sealed with a checksum that
// fits, which no fuzzer would find. What is accepted is printed as it was read.
#include <io/checksum/xxh3.h>
#include <io/tessera_format/manifest.h>

#include "io/fuzz/fuzz_target.h"

using namespace tessera;           // NOLINT(google-build-using-namespace)
using namespace tessera::io_test;  // NOLINT(google-build-using-namespace)

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) {
    return 0;
  }
  const std::string_view input = view_of(data, size);
  std::string text(input.substr(1));
  if (data[0] % 4 != 0) {
    text += "{\"xxh3\":\"" + detail::print_hex64(detail::xxh3(text)) + "\"}\n";
  }
  std::string printed;
  const bool is_accepted = accepts([&] {
    printed = detail::print_manifest(detail::parse_manifest("m", text));
  });
  if (is_accepted) {
    if (printed != text) {
      fail("a manifest is printed otherwise than it was read");
    }
    read_too_far(input);
  }
  return 0;
}
