// What the ranks of a save know of it: the rank that begins makes a ticket and
// sends it to the others as bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <io/model/reader.h>

namespace tessera::io {

struct SaveTicket {
  std::string path;    // where the checkpoint will be
  std::string folder;  // where it is written until then
  std::string token;   // of this save alone
  Format format = Format::kTessera;
  int64_t ranks = 1;
  bool is_one_file = false;  // safetensors: `path` is a file
};

}  // namespace tessera::io

namespace tessera::detail::inline io_layer {

std::string encode_ticket(const io::SaveTicket& ticket);
/// Throws io::Error (kUsage) for bytes that encode_ticket() did not make.
io::SaveTicket decode_ticket(std::string_view bytes);

}  // namespace tessera::detail::inline io_layer
