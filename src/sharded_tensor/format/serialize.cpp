#include <tessera/sharded_tensor/serialize.h>

#include "sharded_tensor/format/encode.h"

namespace tessera::sharded_tensor {

using format::Kind;

namespace {

template <class T>
std::string write_as(Kind kind, const T& value) {
  format::Writer out;
  format::encode(out, value);
  return format::frame(kind, out.bytes());
}

template <class T>
T read_as(Kind kind, std::string_view bytes, T (*decode)(format::Reader&)) {
  format::Reader in(format::unframe(kind, bytes), name_of(kind));
  T value = decode(in);
  in.finish();
  return value;
}

}  // namespace

std::string serialize(const RemoteDevice& value) {
  return write_as(Kind::kRemoteDevice, value);
}

std::string serialize(const ShardMetadata& value) {
  return write_as(Kind::kShardMetadata, value);
}

std::string serialize(const TensorProperties& value) {
  return write_as(Kind::kTensorProperties, value);
}

std::string serialize(const ShardedTensorMetadata& value) {
  return write_as(Kind::kShardedTensorMetadata, value);
}

std::string serialize(const DevicePlacementSpec& value) {
  return write_as(Kind::kDevicePlacementSpec, value);
}

std::string serialize(const ShardingSpec& value) {
  return write_as(Kind::kShardingSpec, value);
}

template <>
RemoteDevice deserialize(std::string_view bytes) {
  return read_as(Kind::kRemoteDevice, bytes, format::decode_remote_device);
}

template <>
ShardMetadata deserialize(std::string_view bytes) {
  return read_as(Kind::kShardMetadata, bytes, format::decode_shard_metadata);
}

template <>
TensorProperties deserialize(std::string_view bytes) {
  return read_as(
      Kind::kTensorProperties, bytes, format::decode_tensor_properties);
}

template <>
ShardedTensorMetadata deserialize(std::string_view bytes) {
  return read_as(
      Kind::kShardedTensorMetadata, bytes,
      format::decode_sharded_tensor_metadata);
}

template <>
DevicePlacementSpec deserialize(std::string_view bytes) {
  return read_as(
      Kind::kDevicePlacementSpec, bytes, format::decode_device_placement_spec);
}

template <>
ShardingSpecPtr deserialize(std::string_view bytes) {
  return read_as(Kind::kShardingSpec, bytes, format::decode_sharding_spec);
}

}  // namespace tessera::sharded_tensor
