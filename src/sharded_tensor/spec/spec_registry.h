// The decoders of users' specs, by the name of the spec.
#pragma once

#include <functional>
#include <string>

#include <tessera/sharded_tensor/sharding_spec.h>

namespace tessera::sharded_tensor::format {

using SpecDecoder = std::function<ShardingSpecPtr(const std::string&)>;

inline constexpr const char* kChunkName = "ChunkShardingSpec";
inline constexpr const char* kEnumerableName = "EnumerableShardingSpec";

/// Tells whether a name belongs to a spec of the library.
bool is_built_in(const std::string& name);
/// Returns the decoder of a name; an empty one where none is registered.
SpecDecoder find_spec_decoder(const std::string& name);

}  // namespace tessera::sharded_tensor::format
