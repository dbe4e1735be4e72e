#include <io/dcp/zip_layout.h>

#include <algorithm>

#include <io/checksum/crc32.h>
#include <io/dcp/zip_fields.h>

namespace tessera::detail::inline io_layer {

namespace {

constexpr uint64_t kAlignment = 64;

// What follows a payload, with longer fields where it is long.
std::string make_descriptor(uint64_t bytes, uint32_t crc) {
  std::string text;
  ZipEncoder out(text);
  out.u32(kDescriptorSignature).u32(crc);
  if (bytes >= kIn64) {
    out.u64(bytes).u64(bytes);
  } else {
    out.u32(bytes).u32(bytes);
  }
  return text;
}

void write_central(
    std::string& text, const ZipRecord& record, bool has_descriptor) {
  std::string extra;
  ZipEncoder numbers(extra);
  if (record.bytes >= kIn64) {
    numbers.u64(record.bytes).u64(record.bytes);
  }
  if (record.header >= kIn64) {
    numbers.u64(record.header);
  }
  const uint64_t size = std::min<uint64_t>(record.bytes, kIn64);
  ZipEncoder out(text);
  out.u32(kCentralSignature).u32(0);
  out.u16(kUtf8Name | (has_descriptor ? kHasDescriptor : 0)).u16(0).u32(0);
  out.u32(record.crc).u32(size).u32(size);
  out.u16(record.name.size()).u16(extra.empty() ? 0 : 4 + extra.size());
  out.u16(0).u16(0).u16(0).u32(0);
  out.u32(std::min<uint64_t>(record.header, kIn64));
  text.append(record.name);
  if (!extra.empty()) {
    ZipEncoder(text).u16(kZip64Extra).u16(extra.size());
    text.append(extra);
  }
}

// The zip64 record stands always, as torch has it: one form for all sizes.
void write_end(
    std::string& text, uint64_t offset, uint64_t bytes, uint64_t records) {
  ZipEncoder out(text);
  out.u32(kEnd64Signature).u64(kEnd64Bytes - 12).u16(45).u16(45);
  out.u32(0).u32(0).u64(records).u64(records);
  out.u64(bytes).u64(offset);
  out.u32(kLocatorSignature).u32(0);
  out.u64(offset + bytes).u32(1);
  out.u32(kEndSignature).u32(0).u16(records).u16(records);
  out.u32(bytes);
  out.u32(std::min<uint64_t>(offset, kIn64)).u16(0);
}

}  // namespace

void ZipLayout::add_header(
    std::string_view name, uint64_t bytes, uint32_t crc, bool is_payload) {
  ZipRecord record;
  record.name = name;
  record.header = end();
  record.bytes = bytes;
  record.crc = crc;
  records_.push_back(record);
  // The payload's CRC32 follows it. An extra field pads its header.
  const uint64_t unpadded = end() + kLocalBytes + name.size() + 4;
  const uint64_t padding =
      is_payload ? (kAlignment - unpadded % kAlignment) % kAlignment : 0;
  const uint64_t size = is_payload ? 0 : bytes;
  ZipEncoder out(tail());
  out.u32(kLocalSignature).u16(0);
  out.u16(kUtf8Name | (is_payload ? kHasDescriptor : 0)).u16(0).u32(0);
  out.u32(crc).u32(size).u32(size).u16(name.size());
  out.u16(is_payload ? 4 + padding : 0);
  tail().append(name);
  if (is_payload) {
    constexpr uint16_t kPaddingExtra = 0x4246;  // "FB", as torch has it
    ZipEncoder(tail()).u16(kPaddingExtra).u16(padding);
    tail().append(padding, 'Z');
  }
}

void ZipLayout::add(std::string_view name, std::string_view bytes) {
  add_header(name, bytes.size(), crc32(bytes.data(), bytes.size()), false);
  tail().append(bytes);
}

void ZipLayout::add_payload(std::string_view name, uint64_t bytes) {
  payload_record_ = records_.size();
  add_header(name, bytes, 0, true);
  has_payload_ = true;
  payload_bytes_ = bytes;
  // Room for the descriptor, which after() writes: it has longer fields where
  // the payload is long.
  behind_.assign(bytes >= kIn64 ? 24 : 16, '\0');
}

std::string ZipLayout::after(uint32_t payload_crc) const {
  std::string text = behind_;
  if (has_payload_) {
    const std::string descriptor = make_descriptor(payload_bytes_, payload_crc);
    text.replace(0, descriptor.size(), descriptor);
  }
  const uint64_t directory = end();
  const size_t directory_at = text.size();
  for (size_t i = 0; i < records_.size(); ++i) {
    ZipRecord record = records_[i];
    const bool is_payload = has_payload_ && i == payload_record_;
    record.crc = is_payload ? payload_crc : record.crc;
    write_central(text, record, is_payload);
  }
  write_end(text, directory, text.size() - directory_at, records_.size());
  return text;
}

}  // namespace tessera::detail::inline io_layer
