// The payload of every value that is saved. Decoding gives what was encoded, or
// a ValueError; encoding refuses what could not be decoded.
#pragma once

#include <string>
#include <vector>

#include <tessera/sharded_tensor/metadata.h>
#include <tessera/sharded_tensor/sharding_spec.h>

#include "sharded_tensor/format/codec.h"

namespace tessera::sharded_tensor::format {

void encode(Writer& out, const RemoteDevice& value);
void encode(Writer& out, const ShardMetadata& value);
void encode(Writer& out, const TensorProperties& value);
void encode(Writer& out, const ShardedTensorMetadata& value);
void encode(Writer& out, const DevicePlacementSpec& value);
void encode(Writer& out, const ShardingSpec& value);

RemoteDevice decode_remote_device(Reader& in);
ShardMetadata decode_shard_metadata(Reader& in);
TensorProperties decode_tensor_properties(Reader& in);
ShardedTensorMetadata decode_sharded_tensor_metadata(Reader& in);
DevicePlacementSpec decode_device_placement_spec(Reader& in);
ShardingSpecPtr decode_sharding_spec(Reader& in);

/// A count and that many shards.
void encode_shards(Writer& out, const std::vector<ShardMetadata>& shards);
std::vector<ShardMetadata> decode_shards(Reader& in);

}  // namespace tessera::sharded_tensor::format
