#include <tessera/sharded_tensor/serialize.h>

#include "sharded_tensor/format/encode_types.h"

namespace tessera::sharded_tensor {

using format::Kind;

namespace {

template <class T>
std::string write_as(Kind kind, const T& value, Format format) {
  return format::write_value(kind, format, [&](format::Encoder& out) {
    format::encode_value(out, value);
  });
}

template <class T>
T read_as(Kind kind, std::string_view text, T (*read)(format::Decoder&)) {
  std::optional<T> value;
  format::read_value(
      kind, text, [&](format::Decoder& in) { value.emplace(read(in)); });
  return *std::move(value);
}

}  // namespace

std::string serialize(const RemoteDevice& value, Format format) {
  return write_as(Kind::kRemoteDevice, value, format);
}

std::string serialize(const ShardMetadata& value, Format format) {
  return write_as(Kind::kShardMetadata, value, format);
}

std::string serialize(const TensorProperties& value, Format format) {
  return write_as(Kind::kTensorProperties, value, format);
}

std::string serialize(const ShardedTensorMetadata& value, Format format) {
  return write_as(Kind::kShardedTensorMetadata, value, format);
}

std::string serialize(const DevicePlacementSpec& value, Format format) {
  return write_as(Kind::kDevicePlacementSpec, value, format);
}

std::string serialize(const ShardingSpec& value, Format format) {
  return write_as(Kind::kShardingSpec, value, format);
}

template <>
RemoteDevice deserialize(std::string_view text) {
  return read_as(Kind::kRemoteDevice, text, format::read_remote_device);
}

template <>
ShardMetadata deserialize(std::string_view text) {
  return read_as(Kind::kShardMetadata, text, format::read_shard_metadata);
}

template <>
TensorProperties deserialize(std::string_view text) {
  return read_as(Kind::kTensorProperties, text, format::read_tensor_properties);
}

template <>
ShardedTensorMetadata deserialize(std::string_view text) {
  return read_as(
      Kind::kShardedTensorMetadata, text, format::read_sharded_tensor_metadata);
}

template <>
DevicePlacementSpec deserialize(std::string_view text) {
  return read_as(
      Kind::kDevicePlacementSpec, text, format::read_device_placement_spec);
}

template <>
ShardingSpecPtr deserialize(std::string_view text) {
  return read_as(Kind::kShardingSpec, text, format::read_sharding_spec);
}

}  // namespace tessera::sharded_tensor
