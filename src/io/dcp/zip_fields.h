// Numbers of zip files: signatures, sizes of their fixed parts, little endian.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::detail::inline io_layer {

inline constexpr uint32_t kLocalSignature = 0x04034b50;
inline constexpr uint32_t kDescriptorSignature = 0x08074b50;
inline constexpr uint32_t kCentralSignature = 0x02014b50;
inline constexpr uint32_t kEndSignature = 0x06054b50;
inline constexpr uint32_t kEnd64Signature = 0x06064b50;
inline constexpr uint32_t kLocatorSignature = 0x07064b50;
inline constexpr size_t kLocalBytes = 30;
inline constexpr size_t kCentralBytes = 46;
inline constexpr size_t kEndBytes = 22;
inline constexpr size_t kEnd64Bytes = 56;
inline constexpr size_t kLocatorBytes = 20;
inline constexpr uint16_t kZip64Extra = 1;
inline constexpr uint16_t kEncrypted = 1;
inline constexpr uint16_t kHasDescriptor = 8;
inline constexpr uint16_t kUtf8Name = 0x800;
/// Stands in a field of 32 bits for a number that has 64 elsewhere.
inline constexpr uint32_t kIn64 = 0xffffffff;

/// Reads little-endian numbers one after another; the text must hold them.
class ZipDecoder {
 public:
  explicit ZipDecoder(std::string_view text) : text_(text) {}
  uint16_t u16() { return static_cast<uint16_t>(take(2)); }
  uint32_t u32() { return static_cast<uint32_t>(take(4)); }
  uint64_t u64() { return take(8); }
  size_t left() const { return text_.size(); }

 private:
  uint64_t take(size_t bytes) {
    uint64_t value = 0;
    for (size_t i = bytes; i-- > 0;) {
      value = value << 8 | static_cast<uint8_t>(text_[i]);
    }
    text_.remove_prefix(bytes);
    return value;
  }
  std::string_view text_;
};

/// Appends little-endian numbers.
class ZipEncoder {
 public:
  explicit ZipEncoder(std::string& text) : text_(text) {}
  ZipEncoder& u16(uint64_t value) { return put(value, 2); }
  ZipEncoder& u32(uint64_t value) { return put(value, 4); }
  ZipEncoder& u64(uint64_t value) { return put(value, 8); }

 private:
  ZipEncoder& put(uint64_t value, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i, value >>= 8) {
      text_.push_back(static_cast<char>(value & 255));
    }
    return *this;
  }
  std::string& text_;
};

}  // namespace tessera::detail::inline io_layer
