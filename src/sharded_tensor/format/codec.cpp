#include "sharded_tensor/format/codec.h"

#include <c10/util/Exception.h>

#include "base/hash.h"

namespace tessera::sharded_tensor::format {

namespace {

constexpr std::string_view kMagic = "TESS";
constexpr size_t kChecksumBytes = 8;

// FNV-1a with every bit of the result made to depend on all others.
uint64_t checksum(std::string_view bytes) {
  return base::hash_combine(0, base::hash_bytes(bytes));
}

}  // namespace

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::kRemoteDevice:
      return "RemoteDevice";
    case Kind::kShardMetadata:
      return "ShardMetadata";
    case Kind::kTensorProperties:
      return "TensorProperties";
    case Kind::kShardedTensorMetadata:
      return "ShardedTensorMetadata";
    case Kind::kDevicePlacementSpec:
      return "DevicePlacementSpec";
    case Kind::kShardingSpec:
      return "ShardingSpec";
    case Kind::kShardedTensor:
      return "ShardedTensor";
    case Kind::kStateDict:
      return "state dict";
  }
  return "unknown";
}

void Writer::little_endian(uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) {
    bytes_.push_back(static_cast<char>((value >> (8 * i)) & 0xff));
  }
}

void Writer::string(std::string_view bytes) {
  u64(bytes.size());
  raw(bytes);
}

void Writer::ints(const std::vector<int64_t>& values) {
  u64(values.size());
  for (const int64_t value : values) {
    i64(value);
  }
}

uint64_t Reader::little_endian(int bytes) {
  uint64_t value = 0;
  int shift = 0;
  for (const char c : view(static_cast<size_t>(bytes))) {
    value |= uint64_t{static_cast<uint8_t>(c)} << shift;
    shift += 8;
  }
  return value;
}

std::vector<int64_t> Reader::ints() {
  std::vector<int64_t> values(count(8));
  for (int64_t& value : values) {
    value = i64();
  }
  return values;
}

size_t Reader::count(size_t least_bytes) {
  const uint64_t elements = u64();
  if (elements > left() / least_bytes) {
    fail(c10::str(
        "a count of ", elements, " exceeds the ", left(), " bytes left"));
  }
  return elements;
}

std::string_view Reader::view(size_t size) {
  if (size > left()) {
    fail(c10::str(size, " bytes are wanted and ", left(), " are left"));
  }
  const std::string_view result = bytes_.substr(at_, size);
  at_ += size;
  return result;
}

void Reader::finish() const {
  if (left() != 0) {
    fail(c10::str(left(), " bytes follow the value"));
  }
}

void Reader::fail(const std::string& problem) const {
  TORCH_CHECK_VALUE(
      false, "deserialize ", what_, ": ", problem, "; at byte ", at_);
}

std::string frame(Kind kind, std::string_view payload) {
  Writer out;
  out.raw(kMagic);
  out.u16(kVersion);
  out.u16(static_cast<uint16_t>(kind));
  out.string(payload);
  out.u64(checksum(out.bytes()));
  return out.take();
}

std::string_view unframe(Kind kind, std::string_view bytes) {
  Reader in(bytes, name_of(kind));
  if (in.view(kMagic.size()) != kMagic) {
    in.fail("the bytes do not begin with TESS");
  }
  const uint16_t version = in.u16();
  if (version != kVersion) {
    in.fail(c10::str(
        "version ", version, " is not known; this library reads version ",
        kVersion));
  }
  const auto found = static_cast<Kind>(in.u16());
  if (found != kind) {
    in.fail(c10::str(
        "the bytes hold kind ", static_cast<int>(found), " (", name_of(found),
        "), not ", static_cast<int>(kind)));
  }
  const std::string_view payload = in.view(in.count(1));
  const std::string_view covered = bytes.substr(0, bytes.size() - in.left());
  if (in.left() != kChecksumBytes || in.u64() != checksum(covered)) {
    in.fail("the checksum is wrong; the bytes are damaged");
  }
  return payload;
}

}  // namespace tessera::sharded_tensor::format
