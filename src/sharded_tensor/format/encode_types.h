// The fields of every value that is saved. Reading gives what was written, or a
// ValueError; writing refuses what could not be read.
#pragma once

#include "sharded_tensor/format/archive.h"

namespace tessera::sharded_tensor::format {

void write_fields(FieldWriter& out, const RemoteDevice& value);
void write_fields(FieldWriter& out, const ShardMetadata& value);
void write_fields(FieldWriter& out, const TensorProperties& value);
void write_fields(FieldWriter& out, const ShardedTensorMetadata& value);
void write_fields(FieldWriter& out, const DevicePlacementSpec& value);
void write_fields(FieldWriter& out, const ShardingSpec& value);

RemoteDevice read_remote_device(FieldReader& in);
ShardMetadata read_shard_metadata(FieldReader& in);
TensorProperties read_tensor_properties(FieldReader& in);
ShardedTensorMetadata read_sharded_tensor_metadata(FieldReader& in);
DevicePlacementSpec read_device_placement_spec(FieldReader& in);
ShardingSpecPtr read_sharding_spec(FieldReader& in);

/// A count and that many shards.
void write_shards(FieldWriter& out, const std::vector<ShardMetadata>& shards);
std::vector<ShardMetadata> read_shards(FieldReader& in);

/// Returns the payload of a spec of the library, its name apart.
std::string encode_fields(const ChunkShardingSpec& spec);
std::string encode_fields(const EnumerableShardingSpec& spec);

}  // namespace tessera::sharded_tensor::format
