// Zip files whose records are stored, not compressed: the form of every item of
// a DCP checkpoint.
//
//   local header, bytes (, descriptor)     for each record
//   central directory                      names, sizes, CRC32, offsets
//   (zip64 end, its locator,) end
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <io/dcp/byte_source.h>

namespace tessera::detail::inline io_layer {

struct ZipRecord {
  std::string name;
  uint64_t header = 0;  // of its local header
  uint64_t offset = 0;  // of its bytes
  uint64_t bytes = 0;
  uint32_t crc = 0;
};

/// Reads the directory; the source must outlive it. Refuses what is compressed
/// or encrypted, spread over several files, has records that share bytes, or
/// two of one name, and directories that disagree with the headers of records.
class StoredZip {
 public:
  explicit StoredZip(const ByteSource& source);

  const ByteSource& source() const { return source_; }
  const std::vector<ZipRecord>& records() const { return records_; }
  /// Returns the record of a name; null where there is none.
  const ZipRecord* find(std::string_view name) const;
  /// Returns the bytes of a record, checked by its CRC32.
  std::string read(const ZipRecord& record) const;

 private:
  const ByteSource& source_;
  std::vector<ZipRecord> records_;
};

}  // namespace tessera::detail::inline io_layer
