// Headers of safetensors files (behind 4 bytes that say how many bytes of data
// follow), their extra metadata, and indices.
#include <io/safetensors/extra_metadata.h>
#include <io/safetensors/header.h>
#include <io/safetensors/index_file.h>

#include "io/fuzz/fuzz_target.h"

using namespace tessera;           // NOLINT(google-build-using-namespace)
using namespace tessera::io_test;  // NOLINT(google-build-using-namespace)

namespace {

void read_header(std::string_view input) {
  if (input.size() < 4) {
    return;
  }
  uint64_t bytes = 0;
  for (size_t i = 4; i-- > 0;) {
    bytes = bytes << 8 | static_cast<uint8_t>(input[i]);
  }
  detail::SafetensorsHeader header =
      detail::parse_safetensors_header("h", input.substr(4), bytes);
  // Written again, it holds the same tensors.
  const std::string text = detail::print_safetensors_header("h", header);
  const detail::SafetensorsHeader back = detail::parse_safetensors_header(
      "h", std::string_view(text).substr(8), bytes);
  if (back.tensors.size() != header.tensors.size() ||
      back.metadata != header.metadata) {
    fail("a header changes when it is written again");
  }
}

void read_rest(uint8_t choice, std::string_view text) {
  if (choice == 1) {
    const detail::SafetensorsIndex index = detail::parse_index("i", text);
    const detail::SafetensorsIndex back =
        detail::parse_index("i", detail::print_index(index));
    if (back.weight_map != index.weight_map) {
      fail("an index changes when it is written again");
    }
  } else {
    try {
      const detail::ExtraState state = detail::parse_extra_state("s", text);
      detail::parse_extra_state("s", detail::print_extra_state(state));
    } catch (const io::Error&) {
    }
    detail::parse_shard_offsets("s", text);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) {
    return 0;
  }
  const std::string_view input = view_of(data, size);
  const uint8_t choice = data[0] % 4;
  const bool is_accepted = accepts([&] {
    if (choice == 0 || choice == 3) {
      read_header(input.substr(1));
    } else {
      read_rest(choice, input.substr(1));
    }
  });
  if (is_accepted) {
    read_too_far(input);
  }
  return 0;
}
