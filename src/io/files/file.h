// An open file: reads and writes at offsets, all of what was asked for or an
// error that names the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <io/files/file_system.h>

namespace tessera::detail::inline io_layer {

/// Calls again while a signal interrupts.
template <typename Call>
auto retry_interrupted(const Call& call) {
  constexpr int kInterrupted = -4;  // -EINTR
  auto result = call();
  while (result == kInterrupted) {
    result = call();
  }
  return result;
}

/// Owns a descriptor.
class Descriptor {
 public:
  Descriptor(io::FileSystem& files, int number)
      : files_(&files), number_(number) {}
  Descriptor(Descriptor&& other) noexcept
      : files_(other.files_), number_(other.number_) {
    other.number_ = -1;
  }
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(files_, other.files_);
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() { close(); }

  io::FileSystem& files() const { return *files_; }
  int number() const { return number_; }
  /// Returns 0 or a negative errno; later calls do nothing.
  int close();

 private:
  io::FileSystem* files_;
  int number_;
};

class File {
 public:
  /// `path` is what errors say.
  File(io::FileSystem& files, int descriptor, std::string path)
      : descriptor_(files, descriptor), path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  uint64_t size() const;
  /// Reads all of `size` bytes; a file that ends before is corrupt.
  void read(void* bytes, size_t size, uint64_t offset) const;
  /// Reads the file, which must have at most `most` bytes.
  std::string read_all(uint64_t most) const;
  void write(const void* bytes, size_t size, uint64_t offset);
  /// Returns once the bytes are on the disk.
  void sync();
  /// Closes, with the errors that a destructor cannot tell.
  void close();
  /// Takes the file's lock until it is given back or closed; false where it is
  /// taken.
  bool lock() const;
  void unlock() const;

 private:
  Descriptor descriptor_;
  std::string path_;
};

}  // namespace tessera::detail::inline io_layer
