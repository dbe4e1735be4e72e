#include <io/files/file.h>

#include <algorithm>
#include <utility>

#include <io/files/error.h>

namespace tessera::detail::inline io_layer {

int Descriptor::close() {
  if (number_ < 0) {
    return 0;
  }
  // Linux frees the descriptor also where close() was interrupted.
  constexpr int kInterrupted = -4;
  const int result = files_->close(std::exchange(number_, -1));
  return result == kInterrupted ? 0 : result;
}

uint64_t File::size() const {
  io::FileStatus status;
  const int result = retry_interrupted([&] {
    return descriptor_.files().status(descriptor_.number(), &status);
  });
  if (result < 0) {
    io::throw_system_error(path_, "ask for the size", -result);
  }
  return status.size;
}

void File::read(void* bytes, size_t size, uint64_t offset) const {
  auto* out = static_cast<char*>(bytes);
  size_t done = 0;
  while (done < size) {
    const int64_t result = retry_interrupted([&] {
      return descriptor_.files().read_at(
          descriptor_.number(), out + done, size - done, offset + done);
    });
    if (result < 0) {
      io::throw_system_error(
          path_,
          "read " + std::to_string(size) + " bytes at byte " +
              std::to_string(offset),
          static_cast<int>(-result));
    }
    if (result == 0) {
      io::throw_corrupt(
          path_, "the file ends at byte " + std::to_string(offset + done) +
                     "; expected " + std::to_string(size) + " bytes at byte " +
                     std::to_string(offset));
    }
    done += static_cast<size_t>(result);
  }
}

std::string File::read_all(uint64_t most) const {
  const uint64_t bytes = size();
  if (bytes > most) {
    io::throw_corrupt(
        path_, "has " + std::to_string(bytes) +
                   " bytes; such a file has at most " + std::to_string(most));
  }
  std::string text(bytes, '\0');
  read(text.data(), text.size(), 0);
  return text;
}

void File::write(const void* bytes, size_t size, uint64_t offset) {
  const auto* in = static_cast<const char*>(bytes);
  size_t done = 0;
  while (done < size) {
    const int64_t result = retry_interrupted([&] {
      return descriptor_.files().write_at(
          descriptor_.number(), in + done, size - done, offset + done);
    });
    if (result <= 0) {
      constexpr int kInputOutput = 5;  // EIO: a disk that takes nothing
      io::throw_system_error(
          path_,
          "write " + std::to_string(size) + " bytes at byte " +
              std::to_string(offset),
          result == 0 ? kInputOutput : static_cast<int>(-result));
    }
    done += static_cast<size_t>(result);
  }
}

void File::sync() {
  const int result = retry_interrupted(
      [&] { return descriptor_.files().sync(descriptor_.number()); });
  if (result < 0) {
    io::throw_system_error(path_, "sync", -result);
  }
}

void File::close() {
  const int result = descriptor_.close();
  if (result < 0) {
    io::throw_system_error(path_, "close", -result);
  }
}

bool File::lock() const {
  constexpr int kTaken = -11;  // -EWOULDBLOCK
  const int result = retry_interrupted(
      [&] { return descriptor_.files().lock(descriptor_.number()); });
  if (result < 0 && result != kTaken) {
    io::throw_system_error(path_, "lock", -result);
  }
  return result == 0;
}

void File::unlock() const {
  const int result = retry_interrupted(
      [&] { return descriptor_.files().unlock(descriptor_.number()); });
  if (result < 0) {
    io::throw_system_error(path_, "unlock", -result);
  }
}

}  // namespace tessera::detail::inline io_layer
