// The fields of every value that is saved. Reading gives what was written, or a
// ValueError; writing refuses what could not be read.
#pragma once

#include "sharded_tensor/format/archive.h"

namespace tessera::sharded_tensor::format {

void encode_value(Encoder& out, const RemoteDevice& value);
void encode_value(Encoder& out, const ShardMetadata& value);
void encode_value(Encoder& out, const TensorProperties& value);
void encode_value(Encoder& out, const ShardedTensorMetadata& value);
void encode_value(Encoder& out, const DevicePlacementSpec& value);
void encode_value(Encoder& out, const ShardingSpec& value);

RemoteDevice read_remote_device(Decoder& in);
ShardMetadata read_shard_metadata(Decoder& in);
TensorProperties read_tensor_properties(Decoder& in);
ShardedTensorMetadata read_sharded_tensor_metadata(Decoder& in);
DevicePlacementSpec read_device_placement_spec(Decoder& in);
ShardingSpecPtr read_sharding_spec(Decoder& in);

/// A count and that many shards.
void write_shards(Encoder& out, const std::vector<ShardMetadata>& shards);
std::vector<ShardMetadata> read_shards(Decoder& in);

/// Returns the payload of a spec of the library, its name apart.
std::string encode_fields(const ChunkShardingSpec& spec);
std::string encode_fields(const EnumerableShardingSpec& spec);

}  // namespace tessera::sharded_tensor::format
