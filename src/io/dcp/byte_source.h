// Bytes that a reader asks for by offset: a part of a file, or memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <io/files/file.h>

namespace tessera::detail::inline io_layer {

class ByteSource {
 public:
  /// A part of a file, which must lie inside it. A small part is read at once.
  ByteSource(std::shared_ptr<const File> file, uint64_t offset, uint64_t size);
  /// Memory; `path` is what errors name.
  ByteSource(std::string path, std::string bytes);

  /// "a/__0_0.distcp", for errors.
  const std::string& path() const { return path_; }
  /// Where it begins in its file.
  uint64_t offset() const { return offset_; }
  uint64_t size() const { return size_; }
  /// Reads bytes; those beyond the end are an error of the file.
  void read(void* out, size_t size, uint64_t offset) const;
  std::string read_text(uint64_t size, uint64_t offset) const;

 private:
  static constexpr uint64_t kSmallBytes = uint64_t{64} << 10;

  std::shared_ptr<const File> file_;
  std::string path_;
  uint64_t offset_ = 0;
  uint64_t size_ = 0;
  bool is_loaded_ = false;
  std::string bytes_;
};

}  // namespace tessera::detail::inline io_layer
