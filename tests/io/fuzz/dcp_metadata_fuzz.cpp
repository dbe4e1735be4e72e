// DCP's metadata, and pickles of values. What is accepted is written again and
// read as the same.
#include <io/dcp/metadata.h>
#include <io/dcp/pickle_tree.h>
#include <io/dcp/pickle_value.h>
#include <io/dcp/pickle_writer.h>
#include <io/model/check_entry.h>

#include "io/fuzz/fuzz_target.h"

using namespace tessera;           // NOLINT(google-build-using-namespace)
using namespace tessera::io_test;  // NOLINT(google-build-using-namespace)

namespace {

io::Value read_value(std::string_view pickle) {
  const detail::PickleTree tree("p", pickle);
  return detail::value_of(tree, tree.root());
}

void read_metadata(std::string_view pickle) {
  const io::Contents contents = detail::parse_dcp_metadata("m", pickle);
  accepts([&] { detail::check_contents("m", contents); });
  const io::Contents back =
      detail::parse_dcp_metadata("m", detail::print_dcp_metadata(contents));
  if (back.entries.size() != contents.entries.size() ||
      back.files.size() > contents.files.size()) {
    fail("metadata change when they are written again");
  }
}

void read_plain(std::string_view pickle) {
  const io::Value value = read_value(pickle);
  std::string written;
  // Opaque values are not written, nor texts that are no UTF-8.
  if (accepts([&] { written = detail::PickleWriter().value(value).take(); }) &&
      !(read_value(written) == value)) {
    fail("a value changes when it is written again");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) {
    return 0;
  }
  const std::string_view input = view_of(data, size);
  const bool is_accepted = accepts([&] {
    data[0] % 4 == 1 ? read_plain(input.substr(1))
                     : read_metadata(input.substr(1));
  });
  if (is_accepted) {
    read_too_far(input);
  }
  return 0;
}
