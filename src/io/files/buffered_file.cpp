#include <io/files/buffered_file.h>

#include <algorithm>

namespace tessera::detail::inline io_layer {

void BufferedFile::flush() {
  if (!buffer_.empty()) {
    file_.write(buffer_.data(), buffer_.size(), buffer_offset_);
    buffer_.clear();
  }
}

void BufferedFile::write(const void* bytes, size_t size, uint64_t offset) {
  if (size == 0) {
    return;
  }
  const uint64_t end = buffer_offset_ + buffer_.size();
  // Behind the highest byte so far there is nothing that zeros could replace.
  const uint64_t gap = end >= highest_ ? kLargestGap : 0;
  const bool goes_on = !buffer_.empty() && offset >= end && offset - end <= gap;
  highest_ = std::max(highest_, offset + size);
  if (!goes_on || buffer_.size() + size > kBufferBytes) {
    flush();
  } else {
    buffer_.resize(static_cast<size_t>(offset - buffer_offset_), '\0');
  }
  if (buffer_.empty() && size >= kBufferBytes) {
    file_.write(bytes, size, offset);
    return;
  }
  if (buffer_.empty()) {
    buffer_offset_ = offset;
  }
  buffer_.append(static_cast<const char*>(bytes), size);
}

void BufferedFile::finish() {
  flush();
  file_.sync();
  file_.close();
}

}  // namespace tessera::detail::inline io_layer
