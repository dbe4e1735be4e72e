#include <io/dcp/byte_source.h>

#include <base/copy_bytes.h>
#include <io/files/error.h>

namespace tessera::detail::inline io_layer {

ByteSource::ByteSource(
    std::shared_ptr<const File> file, uint64_t offset, uint64_t size)
    : file_(std::move(file)),
      path_(file_->path()),
      offset_(offset),
      size_(size) {
  if (size <= kSmallBytes) {
    bytes_.resize(size);
    file_->read(bytes_.data(), bytes_.size(), offset);
    is_loaded_ = true;
  }
}

ByteSource::ByteSource(std::string path, std::string bytes)
    : path_(std::move(path)),
      size_(bytes.size()),
      is_loaded_(true),
      bytes_(std::move(bytes)) {}

void ByteSource::read(void* out, size_t size, uint64_t offset) const {
  if (size > size_ || offset > size_ - size) {
    io::throw_corrupt(
        path_, "bytes " + std::to_string(offset) + " to " +
                   std::to_string(offset) + " + " + std::to_string(size) +
                   " of an item of " + std::to_string(size_) +
                   " bytes at byte " + std::to_string(offset_));
  }
  if (is_loaded_) {
    base::copy_bytes(out, bytes_.data() + offset, size);
  } else {
    file_->read(out, size, offset_ + offset);
  }
}

std::string ByteSource::read_text(uint64_t size, uint64_t offset) const {
  if (size > size_) {
    io::throw_corrupt(path_, "asks for more bytes than it has");
  }
  std::string text(size, '\0');
  read(text.data(), text.size(), offset);
  return text;
}

}  // namespace tessera::detail::inline io_layer
