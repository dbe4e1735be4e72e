// Bytes of the library's formats: numbers in little endian inside a frame that
// says what it holds and whether it arrived whole.
//
//   "TESS" | u16 version | u16 kind | u64 payload length | payload |
//   u64 checksum of all that precedes
//
// A reader takes nothing on trust: it throws ValueError for whatever does not
// fit, before it allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::sharded_tensor::format {

inline constexpr uint16_t kVersion = 1;

/// What a frame holds. The numbers are part of the format.
enum class Kind : uint16_t {
  kRemoteDevice = 1,
  kShardMetadata = 2,
  kTensorProperties = 3,
  kShardedTensorMetadata = 4,
  kDevicePlacementSpec = 5,
  kShardingSpec = 6,
  kShardedTensor = 7,
  kStateDict = 8,
};
/// Returns the name of the type: "ShardMetadata".
const char* name_of(Kind kind);

/// Appends values to bytes.
class Writer {
 public:
  void u8(uint8_t value) { little_endian(value, 1); }
  void u16(uint16_t value) { little_endian(value, 2); }
  void u64(uint64_t value) { little_endian(value, 8); }
  void i64(int64_t value) { u64(static_cast<uint64_t>(value)); }
  /// A u64 length and the bytes.
  void string(std::string_view bytes);
  /// A u64 count and the numbers.
  void ints(const std::vector<int64_t>& values);
  /// Bytes alone.
  void raw(std::string_view bytes) { bytes_.append(bytes); }

  const std::string& bytes() const { return bytes_; }
  std::string take() { return std::move(bytes_); }

 private:
  void little_endian(uint64_t value, int bytes);
  std::string bytes_;
};

/// Takes values from bytes that must outlive it, in the order of the Writer.
class Reader {
 public:
  /// `what` names the value in messages.
  Reader(std::string_view bytes, const char* what)
      : bytes_(bytes), what_(what) {}

  uint8_t u8() { return static_cast<uint8_t>(little_endian(1)); }
  uint16_t u16() { return static_cast<uint16_t>(little_endian(2)); }
  uint64_t u64() { return little_endian(8); }
  int64_t i64() { return static_cast<int64_t>(u64()); }
  std::string string() { return std::string(view(count(1))); }
  std::vector<int64_t> ints();
  /// Reads the number of elements that follow; throws where the bytes that are
  /// left cannot hold so many, each of at least `least_bytes` >= 1.
  size_t count(size_t least_bytes);
  /// Returns the next bytes, not copied.
  std::string_view view(size_t size);

  size_t at() const { return at_; }
  size_t left() const { return bytes_.size() - at_; }
  /// Throws where bytes are left.
  void finish() const;
  /// Throws ValueError: "deserialize ShardMetadata: PROBLEM at byte 12".
  [[noreturn]] void fail(const std::string& problem) const;

 private:
  uint64_t little_endian(int bytes);
  std::string_view bytes_;
  size_t at_ = 0;
  const char* what_;
};

/// Puts a frame around a payload.
std::string frame(Kind kind, std::string_view payload);
/// Returns the payload of a frame, not copied; throws unless it is a whole and
/// undamaged frame of that kind and of a version that is known.
std::string_view unframe(Kind kind, std::string_view bytes);

}  // namespace tessera::sharded_tensor::format
