// Serialisation of specs and metadata: versioned, checked, data only.
//
//   "TESS" | u16 version | u16 kind | u64 payload length | payload |
//   u64 checksum of all that precedes; little endian
//
// A reader refuses what it does not know wholly: another version, a wrong
// checksum, a count beyond the bytes that are left, a value out of range, bytes
// that follow. Nothing in it is executed, and memory stays within a small
// multiple of the input.
#pragma once

#include <string>
#include <string_view>

#include <tessera/export.h>
#include <tessera/sharded_tensor/metadata.h>
#include <tessera/sharded_tensor/sharding_spec.h>

namespace tessera::sharded_tensor {

/// Returns the bytes of a value; to_string() prints it.
TESSERA_API std::string serialize(const RemoteDevice& value);
TESSERA_API std::string serialize(const ShardMetadata& value);
TESSERA_API std::string serialize(const TensorProperties& value);
TESSERA_API std::string serialize(const ShardedTensorMetadata& value);
TESSERA_API std::string serialize(const DevicePlacementSpec& value);
/// Writes a chunk or enumerable spec, or a user's spec that has an encode();
/// throws ValueError for one that has none.
TESSERA_API std::string serialize(const ShardingSpec& value);

/// Reads what serialize() wrote of a T: one of the types above, ShardingSpecPtr
/// for a spec. Throws ValueError for anything else.
/// Example: auto m = deserialize<ShardedTensorMetadata>(bytes);
template <class T>
T deserialize(std::string_view bytes);

template <>
TESSERA_API RemoteDevice deserialize(std::string_view bytes);
template <>
TESSERA_API ShardMetadata deserialize(std::string_view bytes);
template <>
TESSERA_API TensorProperties deserialize(std::string_view bytes);
template <>
TESSERA_API ShardedTensorMetadata deserialize(std::string_view bytes);
template <>
TESSERA_API DevicePlacementSpec deserialize(std::string_view bytes);
template <>
TESSERA_API ShardingSpecPtr deserialize(std::string_view bytes);

}  // namespace tessera::sharded_tensor
