#include <io/dcp/stored_zip.h>

#include <algorithm>
#include <unordered_set>

#include <base/escape.h>
#include <io/checksum/crc32.h>
#include <io/dcp/zip_fields.h>
#include <io/files/error.h>

namespace tessera::detail::inline io_layer {

namespace {

struct Directory {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t records = 0;
};

[[noreturn]] void fail(const ByteSource& source, const std::string& problem) {
  io::throw_corrupt(
      source.path(), "the item at byte " + std::to_string(source.offset()) +
                         " is no stored zip: " + problem);
}

// The zip64 record that a locator before the end points to; false for none.
bool read_end64(const ByteSource& source, uint64_t end, Directory* found) {
  if (end < kLocatorBytes + kEnd64Bytes) {
    return false;
  }
  const uint64_t at = end - kLocatorBytes - kEnd64Bytes;
  const std::string text = source.read_text(kLocatorBytes + kEnd64Bytes, at);
  ZipDecoder locator(std::string_view(text).substr(kEnd64Bytes));
  if (locator.u32() != kLocatorSignature) {
    return false;
  }
  ZipDecoder record(text);
  const bool is_one_file = locator.u32() == 0;
  if (!is_one_file || locator.u64() != at || locator.u32() != 1 ||
      record.u32() != kEnd64Signature || record.u64() != kEnd64Bytes - 12) {
    fail(source, "its zip64 record is not where the locator says");
  }
  record.u32();  // versions
  const bool is_first_file = record.u32() == 0 && record.u32() == 0;
  found->records = record.u64();
  if (!is_first_file || record.u64() != found->records) {
    fail(source, "it is spread over several files");
  }
  found->bytes = record.u64();
  found->offset = record.u64();
  return true;
}

// Tells whether a short field says what the long one does.
bool agrees(uint64_t field, uint64_t value, uint64_t in_64) {
  return field == value || (field == in_64 && value >= in_64);
}

Directory find_directory(const ByteSource& source) {
  if (source.size() < kEndBytes) {
    fail(source, "it has " + std::to_string(source.size()) + " bytes");
  }
  const uint64_t at = source.size() - kEndBytes;
  const std::string text = source.read_text(kEndBytes, at);
  ZipDecoder end(text);
  if (end.u32() != kEndSignature || end.u32() != 0) {
    fail(source, "no end record stands at its end");
  }
  const uint64_t here = end.u16();
  const uint64_t records = end.u16();
  const uint64_t bytes = end.u32();
  const uint64_t offset = end.u32();
  Directory found{offset, bytes, records};
  uint64_t directory_end = at;
  if (read_end64(source, at, &found)) {
    directory_end = at - kLocatorBytes - kEnd64Bytes;
  }
  if (here != records || end.u16() != 0 ||
      !agrees(records, found.records, 0xffff) ||
      !agrees(bytes, found.bytes, kIn64) ||
      !agrees(offset, found.offset, kIn64) || found.bytes > directory_end ||
      found.offset != directory_end - found.bytes ||
      found.records > found.bytes / kCentralBytes) {
    fail(source, "its end records disagree with each other or with its size");
  }
  return found;
}

// Numbers that do not fit into 32 bits stand in an extra field, in this order.
void read_extra64(
    const ByteSource& source, std::string_view extra, uint64_t* size,
    uint64_t* stored_size, uint64_t* header) {
  while (extra.size() >= 4) {
    ZipDecoder fields(extra);
    const uint16_t id = fields.u16();
    const uint16_t length = fields.u16();
    if (length > extra.size() - 4) {
      fail(source, "an extra field is longer than its record");
    }
    ZipDecoder numbers(extra.substr(4, length));
    for (uint64_t* number : {size, stored_size, header}) {
      if (id == kZip64Extra && *number == kIn64 && numbers.left() >= 8) {
        *number = numbers.u64();
      }
    }
    extra.remove_prefix(4 + size_t{length});
  }
}

// Reads one record of the directory, and moves on.
ZipRecord read_central(const ByteSource& source, std::string_view& text) {
  if (text.size() < kCentralBytes) {
    fail(source, "its directory ends early");
  }
  ZipDecoder in(text);
  const bool is_record = in.u32() == kCentralSignature;
  in.u32();  // versions
  const uint16_t flags = in.u16();
  const uint16_t method = in.u16();
  in.u32();  // date
  ZipRecord record;
  record.crc = in.u32();
  uint64_t stored_size = in.u32();
  record.bytes = in.u32();
  const size_t name = in.u16();
  const size_t extra = in.u16();
  const size_t comment = in.u16();
  const bool is_here = in.u16() == 0;
  in.u16();
  in.u32();  // attributes
  record.header = in.u32();
  text.remove_prefix(kCentralBytes);
  if (!is_record || !is_here || name + extra + comment > text.size()) {
    fail(source, "its directory is damaged");
  }
  record.name = text.substr(0, name);
  read_extra64(
      source, text.substr(name, extra), &record.bytes, &stored_size,
      &record.header);
  text.remove_prefix(name + extra + comment);
  if (method != 0 || stored_size != record.bytes ||
      (flags & ~(kHasDescriptor | kUtf8Name)) != 0) {
    fail(
        source, "record '" + base::escape(record.name) +
                    "' is compressed or encrypted");
  }
  return record;
}

// Finds a record's bytes behind its own header, which must say the same.
void read_local(
    const ByteSource& source, uint64_t directory, ZipRecord& record) {
  const auto refuse = [&] {
    fail(
        source, "record '" + base::escape(record.name) +
                    "' is not where the directory says");
  };
  if (record.header > directory || directory - record.header < kLocalBytes) {
    refuse();
  }
  const std::string text = source.read_text(kLocalBytes, record.header);
  ZipDecoder in(text);
  const bool is_record = in.u32() == kLocalSignature;
  in.u16();  // version
  const uint16_t flags = in.u16();
  const uint16_t method = in.u16();
  in.u32();  // date
  const uint32_t crc = in.u32();
  const uint32_t stored_size = in.u32();
  const uint32_t size = in.u32();
  const uint64_t name = in.u16();
  const uint64_t extra = in.u16();
  record.offset = record.header + kLocalBytes + name + extra;
  if (!is_record || method != 0 || name != record.name.size() ||
      record.offset > directory || record.bytes > directory - record.offset) {
    refuse();
  }
  const bool has_descriptor = (flags & kHasDescriptor) != 0;
  if (!has_descriptor &&
      (crc != record.crc || !agrees(size, record.bytes, kIn64) ||
       !agrees(stored_size, record.bytes, kIn64))) {
    refuse();
  }
  if (source.read_text(name, record.header + kLocalBytes) != record.name) {
    refuse();
  }
}

void refuse_shared_bytes(
    const ByteSource& source, std::vector<ZipRecord> records) {
  std::sort(
      records.begin(), records.end(),
      [](const ZipRecord& a, const ZipRecord& b) {
        return a.header < b.header;
      });
  std::unordered_set<std::string_view> names;
  for (size_t i = 0; i < records.size(); ++i) {
    const uint64_t end =
        i == 0 ? 0 : records[i - 1].offset + records[i - 1].bytes;
    if (records[i].header < end || !names.insert(records[i].name).second) {
      fail(
          source, "record '" + base::escape(records[i].name) +
                      "' shares bytes or a name with another one");
    }
  }
}

}  // namespace

StoredZip::StoredZip(const ByteSource& source) : source_(source) {
  const Directory directory = find_directory(source);
  const std::string text = source.read_text(directory.bytes, directory.offset);
  std::string_view rest = text;
  for (uint64_t i = 0; i < directory.records; ++i) {
    records_.push_back(read_central(source, rest));
    read_local(source, directory.offset, records_.back());
  }
  if (!rest.empty()) {
    fail(source, "its directory is longer than its records");
  }
  refuse_shared_bytes(source, records_);
}

const ZipRecord* StoredZip::find(std::string_view name) const {
  for (const ZipRecord& record : records_) {
    if (record.name == name) {
      return &record;
    }
  }
  return nullptr;
}

std::string StoredZip::read(const ZipRecord& record) const {
  std::string bytes = source_.read_text(record.bytes, record.offset);
  if (const uint32_t crc = crc32(bytes.data(), bytes.size());
      crc != record.crc) {
    fail(
        source_, "record '" + base::escape(record.name) +
                     "' is damaged: its CRC32 is " + std::to_string(crc) +
                     ", not " + std::to_string(record.crc));
  }
  return bytes;
}

}  // namespace tessera::detail::inline io_layer
