// Numbers, texts and lists one after the other in few bytes, for programs of
// one build that talk to each other: nothing says what is what.
//
//   PackedWriter out;                   PackedReader in(bytes);
//   out.number(300);                    in.number()  // 300
//   out.text("w");                      in.text()    // "w"
//   out.take()  // ac 02 01 77          in.finish();
//
// A number has 7 bits in each byte, the lowest first; texts and lists begin
// with their length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::base {

/// Says why bytes are not those of a PackedWriter.
struct PackedError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class PackedWriter {
 public:
  void number(uint64_t value) {
    for (; value >= 128; value >>= 7) {
      bytes_.push_back(static_cast<char>(value | 128));
    }
    bytes_.push_back(static_cast<char>(value));
  }
  void text(std::string_view text) {
    number(text.size());
    bytes_ += text;
  }
  void numbers(const std::vector<int64_t>& values) {
    number(values.size());
    for (const int64_t value : values) {
      number(static_cast<uint64_t>(value));
    }
  }
  /// Returns the bytes; the writer is empty again.
  std::string take() { return std::exchange(bytes_, {}); }

 private:
  std::string bytes_;
};

/// Throws PackedError where the bytes end early. They must outlive it.
class PackedReader {
 public:
  explicit PackedReader(std::string_view bytes) : rest_(bytes) {}

  uint64_t number() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<uint8_t>(rest_.front());
      rest_.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 127) << shift;
      if (byte < 128) {
        return value;
      }
    }
    throw PackedError("a number does not end");
  }
  /// Reads the length of a list whose elements take a byte at least; no list is
  /// longer than the bytes that are left.
  size_t count() {
    const uint64_t count = number();
    if (count > rest_.size()) {
      throw PackedError("a text or a list is longer than what follows");
    }
    return count;
  }
  std::string_view text() {
    const size_t size = count();
    const std::string_view text = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return text;
  }
  std::vector<int64_t> numbers() {
    std::vector<int64_t> values(count());
    for (int64_t& value : values) {
      value = static_cast<int64_t>(number());
    }
    return values;
  }
  /// Throws unless nothing is left.
  void finish() const {
    if (!rest_.empty()) {
      throw PackedError("something follows the end");
    }
  }

 private:
  std::string_view rest_;
};

}  // namespace tessera::base
