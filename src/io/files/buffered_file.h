// Writing a new file at offsets that mostly go up: small writes, and the zeros
// between payloads, are gathered into large ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <io/files/file.h>

namespace tessera::detail::inline io_layer {

class BufferedFile {
 public:
  explicit BufferedFile(File file) : file_(std::move(file)) {}

  const std::string& path() const { return file_.path(); }
  void write(const void* bytes, size_t size, uint64_t offset);
  /// Writes what is gathered, returns once it is on the disk, and closes.
  void finish();

 private:
  void flush();

  static constexpr size_t kBufferBytes = size_t{1} << 20;
  // Gaps up to this are filled with zeros, larger ones begin a new write.
  static constexpr uint64_t kLargestGap = 4096;

  File file_;
  std::string buffer_;
  uint64_t buffer_offset_ = 0;
  uint64_t highest_ = 0;  // end of all that was written
};

}  // namespace tessera::detail::inline io_layer
