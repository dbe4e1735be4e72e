#include <c10/util/Exception.h>

#include "base/escape.h"
#include "sharded_tensor/format/encode.h"
#include "sharded_tensor/spec/enum_codec.h"
#include "sharded_tensor/spec/shard_checks.h"

namespace tessera::sharded_tensor::format {

namespace {

constexpr size_t kMaxDims = 64;
constexpr const char* kNowhere = "none";
// A shard without dims: two counts and the length of its placement.
constexpr size_t kLeastShardBytes = 24;

void check_ndim(size_t ndim) {
  TORCH_CHECK_VALUE(
      ndim <= kMaxDims, "serialize: at most ", kMaxDims,
      " dims can be saved; got ", ndim);
}

std::vector<int64_t> decode_dims(Reader& in, const char* name) {
  std::vector<int64_t> dims = in.ints();
  if (dims.size() > kMaxDims) {
    in.fail(c10::str(name, " of ", dims.size(), " dims, more than ", kMaxDims));
  }
  return dims;
}

// Turns what a value's own checks say into an error with the place.
template <class Make>
auto checked(const Reader& in, const Make& make) {
  try {
    return make();
  } catch (const c10::Error& error) {
    in.fail(error.what_without_backtrace());
  }
}

bool has_meaning(uint8_t code, const EnumCodec& codec) {
  return code < codec.count && !codec.name(code).empty();
}

template <class T>
void encode_choice(
    Writer& out, const char* name, T value, const EnumCodec& codec) {
  const auto code = static_cast<uint8_t>(value);
  TORCH_CHECK_VALUE(
      has_meaning(code, codec), "serialize: ", static_cast<int>(code),
      " is no code of ", name);
  out.u8(code);
}

template <class T>
T decode_choice(Reader& in, const char* name, const EnumCodec& codec) {
  const uint8_t code = in.u8();
  if (!has_meaning(code, codec)) {
    in.fail(c10::str(static_cast<int>(code), " is no code of ", name));
  }
  return static_cast<T>(code);
}

RemoteDevice parse_device(const Reader& in, const std::string& text) {
  try {
    RemoteDevice device(text);
    if (to_string(device) == text) {
      return device;
    }
  } catch (const c10::Error&) {
    // The parser's own words would repeat the text unescaped.
  }
  in.fail("'" + base::escape(text.substr(0, 60)) + "' is no device");
}

}  // namespace

void encode(Writer& out, const RemoteDevice& value) {
  out.string(to_string(value));
}

RemoteDevice decode_remote_device(Reader& in) {
  return parse_device(in, in.string());
}

void encode(Writer& out, const ShardMetadata& value) {
  check_shard(value);
  check_ndim(value.shard_sizes.size());
  out.ints(value.shard_offsets);
  out.ints(value.shard_sizes);
  out.string(value.placement ? to_string(*value.placement) : kNowhere);
}

ShardMetadata decode_shard_metadata(Reader& in) {
  std::vector<int64_t> offsets = decode_dims(in, "offsets");
  std::vector<int64_t> sizes = decode_dims(in, "sizes");
  const std::string text = in.string();
  std::optional<RemoteDevice> placement;
  if (text != kNowhere) {
    placement = parse_device(in, text);
  }
  return checked(in, [&] {
    return ShardMetadata(
        std::move(offsets), std::move(sizes), std::move(placement));
  });
}

void encode_shards(Writer& out, const std::vector<ShardMetadata>& shards) {
  out.u64(shards.size());
  for (const ShardMetadata& shard : shards) {
    encode(out, shard);
  }
}

std::vector<ShardMetadata> decode_shards(Reader& in) {
  std::vector<ShardMetadata> shards;
  const size_t count = in.count(kLeastShardBytes);
  shards.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    shards.push_back(decode_shard_metadata(in));
  }
  return shards;
}

void encode(Writer& out, const TensorProperties& value) {
  encode_choice(out, "dtype", value.dtype, kDtypes);
  encode_choice(out, "layout", value.layout, kLayouts);
  encode_choice(out, "requires_grad", value.requires_grad, kFlags);
  encode_choice(
      out, "memory_format", encode_memory_format(value.memory_format),
      kMemoryFormats);
  encode_choice(out, "pin_memory", value.pin_memory, kFlags);
}

TensorProperties decode_tensor_properties(Reader& in) {
  TensorProperties value;
  value.dtype = decode_choice<c10::ScalarType>(in, "dtype", kDtypes);
  value.layout = decode_choice<c10::Layout>(in, "layout", kLayouts);
  value.requires_grad = decode_choice<bool>(in, "requires_grad", kFlags);
  value.memory_format = decode_memory_format(
      decode_choice<MemFormatEncoding>(in, "memory_format", kMemoryFormats));
  value.pin_memory = decode_choice<bool>(in, "pin_memory", kFlags);
  return value;
}

void encode(Writer& out, const ShardedTensorMetadata& value) {
  check_sizes("serialize", value.size);
  check_ndim(value.size.size());
  out.ints(value.size);
  encode(out, value.tensor_properties);
  encode_shards(out, value.shards_metadata);
}

ShardedTensorMetadata decode_sharded_tensor_metadata(Reader& in) {
  ShardedTensorMetadata value;
  value.size = decode_dims(in, "size");
  checked(in, [&] { check_sizes("size", value.size); });
  value.tensor_properties = decode_tensor_properties(in);
  value.shards_metadata = decode_shards(in);
  return value;
}

void encode(Writer& out, const DevicePlacementSpec& value) {
  encode(out, value.device);
}

DevicePlacementSpec decode_device_placement_spec(Reader& in) {
  return decode_remote_device(in);
}

}  // namespace tessera::sharded_tensor::format
