// What is known about a sharded tensor but its data: values that compare, hash,
// print and serialise (serialize.h).
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Layout.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>
#include <tessera/export.h>
#include <tessera/layout/box.h>
#include <tessera/sharded_tensor/remote_device.h>

namespace tessera::sharded_tensor {

/// One shard: its box of the global tensor and where it lives.
struct TESSERA_API ShardMetadata {
  ShardMetadata() = default;
  /// Throws unless there are as many offsets as sizes, none is negative and
  /// each sum of the two is below 2^63.
  ShardMetadata(
      std::vector<int64_t> offsets, std::vector<int64_t> sizes,
      std::optional<RemoteDevice> where = std::nullopt);

  std::vector<int64_t> shard_offsets;
  std::vector<int64_t> shard_sizes;
  std::optional<RemoteDevice> placement;

  Box box() const { return {shard_offsets, shard_sizes}; }
  friend bool operator==(const ShardMetadata&, const ShardMetadata&) = default;
};

/// The memory formats that can be saved, by their code.
enum class MemFormatEncoding : uint8_t {
  kTorchContiguousFormat = 0,
  kTorchChannelsLast = 1,
  kTorchPreserveFormat = 2,
};
/// Throws for a format that has no code.
TESSERA_API MemFormatEncoding encode_memory_format(c10::MemoryFormat format);
TESSERA_API c10::MemoryFormat decode_memory_format(MemFormatEncoding code);

/// What all shards have in common. The dtype defaults to LibTorch's default
/// dtype of the moment.
struct TESSERA_API TensorProperties {
  c10::ScalarType dtype = c10::typeMetaToScalarType(c10::get_default_dtype());
  c10::Layout layout = c10::kStrided;
  bool requires_grad = false;
  c10::MemoryFormat memory_format = c10::MemoryFormat::Contiguous;
  bool pin_memory = false;

  /// Returns the properties of a tensor; the memory format is always
  /// contiguous.
  static TensorProperties create_from_tensor(const at::Tensor& tensor);
  friend bool operator==(const TensorProperties&, const TensorProperties&) =
      default;
};

/// The whole of a sharded tensor: its shards in the order of its spec.
struct ShardedTensorMetadata {
  std::vector<ShardMetadata> shards_metadata = {};
  std::vector<int64_t> size = {};
  TensorProperties tensor_properties = {};

  friend bool operator==(
      const ShardedTensorMetadata&, const ShardedTensorMetadata&) = default;
};

/// Tells whether two lists name the same shards, in any order; empty shards
/// count by their owner alone.
TESSERA_API bool same_shards(
    const std::vector<ShardMetadata>& a, const std::vector<ShardMetadata>& b);

/// Prints "ShardMetadata([0, 0], [3, 20], rank:0/cpu)" and the like.
TESSERA_API std::string to_string(const ShardMetadata& metadata);
TESSERA_API std::string to_string(const TensorProperties& properties);
TESSERA_API std::string to_string(const ShardedTensorMetadata& metadata);
TESSERA_API std::ostream& operator<<(
    std::ostream& out, const ShardMetadata& metadata);
TESSERA_API std::ostream& operator<<(
    std::ostream& out, const TensorProperties& properties);
TESSERA_API std::ostream& operator<<(
    std::ostream& out, const ShardedTensorMetadata& metadata);

}  // namespace tessera::sharded_tensor

template <>
struct TESSERA_API std::hash<tessera::sharded_tensor::ShardMetadata> {
  size_t operator()(const tessera::sharded_tensor::ShardMetadata& m) const;
};
