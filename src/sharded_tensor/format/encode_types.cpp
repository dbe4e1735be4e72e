#include "sharded_tensor/format/encode_types.h"

#include <c10/util/Exception.h>

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

std::vector<int64_t> read_dims(Decoder& in, const char* name) {
  std::vector<int64_t> dims = in.numbers(name);
  if (dims.size() > kMaxDims) {
    in.fail(c10::str(name, " of ", dims.size(), " dims, more than ", kMaxDims));
  }
  return dims;
}

// Turns what a value's own checks say into an error with the place.
template <class Make>
auto checked(const Decoder& in, const Make& make) {
  try {
    return make();
  } catch (const c10::Error& error) {
    in.fail(error.what_without_backtrace());
  }
}

RemoteDevice parse_device(const Decoder& in, const std::string& text) {
  try {
    RemoteDevice device(text);
    if (to_string(device) == text) {
      return device;
    }
  } catch (const c10::Error&) {
    // The parser's own words would repeat the text unescaped.
  }
  in.fail("'" + escape(text.substr(0, 60)) + "' is no device");
}

}  // namespace

void encode_value(Encoder& out, const RemoteDevice& value) {
  out.text("device", to_string(value));
}

RemoteDevice read_remote_device(Decoder& in) {
  return parse_device(in, in.text("device"));
}

void encode_value(Encoder& out, const ShardMetadata& value) {
  check_shard(value);
  check_ndim(value.shard_sizes.size());
  out.numbers("offsets", value.shard_offsets);
  out.numbers("sizes", value.shard_sizes);
  out.text(
      "placement", value.placement ? to_string(*value.placement) : kNowhere);
}

ShardMetadata read_shard_metadata(Decoder& in) {
  std::vector<int64_t> offsets = read_dims(in, "offsets");
  std::vector<int64_t> sizes = read_dims(in, "sizes");
  const std::string text = in.text("placement");
  std::optional<RemoteDevice> placement;
  if (text != kNowhere) {
    placement = parse_device(in, text);
  }
  return checked(in, [&] {
    return ShardMetadata(
        std::move(offsets), std::move(sizes), std::move(placement));
  });
}

void write_shards(Encoder& out, const std::vector<ShardMetadata>& shards) {
  out.count("shards", shards.size());
  for (const ShardMetadata& shard : shards) {
    encode_value(out, shard);
  }
}

std::vector<ShardMetadata> read_shards(Decoder& in) {
  std::vector<ShardMetadata> shards;
  const size_t count = in.count("shards", kLeastShardBytes);
  shards.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    shards.push_back(read_shard_metadata(in));
  }
  return shards;
}

void encode_value(Encoder& out, const TensorProperties& value) {
  const auto code = [](auto property) {
    return static_cast<uint8_t>(property);
  };
  out.choice("dtype", code(value.dtype), kDtypes);
  out.choice("layout", code(value.layout), kLayouts);
  out.choice("requires_grad", code(value.requires_grad), kFlags);
  out.choice(
      "memory_format", code(encode_memory_format(value.memory_format)),
      kMemoryFormats);
  out.choice("pin_memory", code(value.pin_memory), kFlags);
}

TensorProperties read_tensor_properties(Decoder& in) {
  TensorProperties value;
  value.dtype = static_cast<c10::ScalarType>(in.choice("dtype", kDtypes));
  value.layout = static_cast<c10::Layout>(in.choice("layout", kLayouts));
  value.requires_grad = in.choice("requires_grad", kFlags) != 0;
  value.memory_format = decode_memory_format(static_cast<MemFormatEncoding>(
      in.choice("memory_format", kMemoryFormats)));
  value.pin_memory = in.choice("pin_memory", kFlags) != 0;
  return value;
}

void encode_value(Encoder& out, const ShardedTensorMetadata& value) {
  check_sizes("serialize", value.size);
  check_ndim(value.size.size());
  out.numbers("size", value.size);
  encode_value(out, value.tensor_properties);
  write_shards(out, value.shards_metadata);
}

ShardedTensorMetadata read_sharded_tensor_metadata(Decoder& in) {
  ShardedTensorMetadata value;
  value.size = read_dims(in, "size");
  checked(in, [&] { check_sizes("size", value.size); });
  value.tensor_properties = read_tensor_properties(in);
  value.shards_metadata = read_shards(in);
  return value;
}

void encode_value(Encoder& out, const DevicePlacementSpec& value) {
  encode_value(out, value.device);
}

DevicePlacementSpec read_device_placement_spec(Decoder& in) {
  return read_remote_device(in);
}

}  // namespace tessera::sharded_tensor::format
