// Writing a stored zip, one record of which may be too large to hold.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <io/dcp/stored_zip.h>

namespace tessera::detail::inline io_layer {

/// A zip of stored records of which one, a payload, is too large to hold: what
/// comes before its bytes, and what comes after.
class ZipLayout {
 public:
  /// Adds a record that is at hand.
  void add(std::string_view name, std::string_view bytes);
  /// Adds the payload; its bytes begin at a multiple of 64.
  void add_payload(std::string_view name, uint64_t bytes);

  /// Returns what stands before the payload, all of it where there is none.
  const std::string& before() const { return before_; }
  uint64_t payload_bytes() const { return payload_bytes_; }
  /// Returns what stands behind it, once its CRC32 is known. The number of
  /// bytes does not depend on it.
  std::string after(uint32_t payload_crc) const;

 private:
  std::string& tail() { return has_payload_ ? behind_ : before_; }
  uint64_t end() const {
    return before_.size() + payload_bytes_ + behind_.size();
  }
  void add_header(
      std::string_view name, uint64_t bytes, uint32_t crc, bool is_payload);

  std::string before_;
  std::string behind_;
  std::vector<ZipRecord> records_;
  bool has_payload_ = false;
  size_t payload_record_ = 0;
  uint64_t payload_bytes_ = 0;
};

}  // namespace tessera::detail::inline io_layer
