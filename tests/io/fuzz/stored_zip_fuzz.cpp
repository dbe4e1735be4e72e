// Items of DCP: stored zips, with the tensors and values in them. Checksums of
// records stop most changes, so records are also looked at without them.
#include <io/dcp/item.h>
#include <io/dcp/stored_zip.h>

#include "io/fuzz/fuzz_target.h"

using namespace tessera;           // NOLINT(google-build-using-namespace)
using namespace tessera::io_test;  // NOLINT(google-build-using-namespace)

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) {
    return 0;
  }
  const std::string_view input = view_of(data, size);
  const bool is_accepted = accepts([&] {
    const detail::ByteSource source("z", std::string(input.substr(1)));
    const detail::StoredZip zip(source);
    for (const detail::ZipRecord& record : zip.records()) {
      const std::string bytes = source.read_text(record.bytes, record.offset);
      if (bytes.size() != record.bytes) {
        fail("a record is not as long as it says");
      }
      accepts([&] { zip.read(record); });
    }
    accepts([&] { detail::read_tensor_item(zip); });
    accepts([&] { detail::read_value_item(zip); });
  });
  if (is_accepted) {
    read_too_far(input);
  }
  return 0;
}
