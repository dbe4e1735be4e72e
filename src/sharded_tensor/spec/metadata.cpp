#include <algorithm>
#include <ostream>
#include <unordered_map>

#include <c10/util/Exception.h>
#include <tessera/layout/notation.h>
#include <tessera/sharded_tensor/metadata.h>

#include "base/hash.h"
#include "base/text.h"
#include "sharded_tensor/spec/enum_codec.h"
#include "sharded_tensor/spec/shard_checks.h"

namespace tessera::sharded_tensor {

ShardMetadata::ShardMetadata(
    std::vector<int64_t> offsets, std::vector<int64_t> sizes,
    std::optional<RemoteDevice> where)
    : shard_offsets(std::move(offsets)),
      shard_sizes(std::move(sizes)),
      placement(std::move(where)) {
  format::check_shard(*this);
}

MemFormatEncoding encode_memory_format(c10::MemoryFormat format) {
  switch (format) {
    case c10::MemoryFormat::Contiguous:
      return MemFormatEncoding::kTorchContiguousFormat;
    case c10::MemoryFormat::ChannelsLast:
      return MemFormatEncoding::kTorchChannelsLast;
    case c10::MemoryFormat::Preserve:
      return MemFormatEncoding::kTorchPreserveFormat;
    case c10::MemoryFormat::ChannelsLast3d:
    case c10::MemoryFormat::NumOptions:
      break;
  }
  TORCH_CHECK(
      false,
      "encode_memory_format: only the formats contiguous, channels_last and "
      "preserve have a code; got number ",
      static_cast<int>(format));
}

c10::MemoryFormat decode_memory_format(MemFormatEncoding code) {
  switch (code) {
    case MemFormatEncoding::kTorchContiguousFormat:
      return c10::MemoryFormat::Contiguous;
    case MemFormatEncoding::kTorchChannelsLast:
      return c10::MemoryFormat::ChannelsLast;
    case MemFormatEncoding::kTorchPreserveFormat:
      return c10::MemoryFormat::Preserve;
  }
  TORCH_CHECK(
      false, "decode_memory_format: codes are 0, 1 and 2; got ",
      static_cast<int>(code));
}

TensorProperties TensorProperties::create_from_tensor(
    const at::Tensor& tensor) {
  return {
      .dtype = tensor.scalar_type(),
      .layout = tensor.layout(),
      .requires_grad = tensor.requires_grad(),
      .memory_format = c10::MemoryFormat::Contiguous,
      .pin_memory = tensor.is_pinned()};
}

namespace {

// One form for all empty shards of an owner; no shard with elements has it.
ShardMetadata without_empty_place(ShardMetadata shard) {
  if (shard.box().empty()) {
    shard.shard_offsets = {0};
    shard.shard_sizes = {0};
  }
  return shard;
}

}  // namespace

bool same_shards(
    const std::vector<ShardMetadata>& a, const std::vector<ShardMetadata>& b) {
  if (a.size() != b.size()) {
    return false;
  }
  std::unordered_map<ShardMetadata, int64_t> surplus;
  for (const ShardMetadata& shard : a) {
    ++surplus[without_empty_place(shard)];
  }
  return std::all_of(b.begin(), b.end(), [&](const ShardMetadata& shard) {
    const auto found = surplus.find(without_empty_place(shard));
    return found != surplus.end() && found->second-- > 0;
  });
}

std::string to_string(const ShardMetadata& metadata) {
  std::string text = "ShardMetadata(" +
                     shape_to_string(metadata.shard_offsets) + ", " +
                     shape_to_string(metadata.shard_sizes);
  if (metadata.placement) {
    text += ", " + to_string(*metadata.placement);
  }
  return text + ")";
}

std::string to_string(const TensorProperties& properties) {
  const auto word = [](const format::EnumCodec& codec, auto value) {
    const auto code = static_cast<uint8_t>(value);
    std::string name = code < codec.count ? codec.name(code) : "";
    return name.empty() ? "?" + std::to_string(code) : name;
  };
  const bool has_code =
      properties.memory_format != c10::MemoryFormat::ChannelsLast3d;
  return c10::str(
      "TensorProperties(", word(format::kDtypes, properties.dtype), ", ",
      word(format::kLayouts, properties.layout),
      ", requires_grad=", word(format::kFlags, properties.requires_grad), ", ",
      has_code ? word(
                     format::kMemoryFormats,
                     encode_memory_format(properties.memory_format))
               : "channels_last_3d",
      ", pin_memory=", word(format::kFlags, properties.pin_memory), ")");
}

std::string to_string(const ShardedTensorMetadata& metadata) {
  return "ShardedTensorMetadata(" + shape_to_string(metadata.size) + ", " +
         to_string(metadata.tensor_properties) + ", [" +
         base::join(metadata.shards_metadata, ", ") + "])";
}

std::ostream& operator<<(std::ostream& out, const ShardMetadata& metadata) {
  return out << to_string(metadata);
}

std::ostream& operator<<(
    std::ostream& out, const TensorProperties& properties) {
  return out << to_string(properties);
}

std::ostream& operator<<(
    std::ostream& out, const ShardedTensorMetadata& metadata) {
  return out << to_string(metadata);
}

}  // namespace tessera::sharded_tensor

size_t std::hash<tessera::sharded_tensor::ShardMetadata>::operator()(
    const tessera::sharded_tensor::ShardMetadata& m) const {
  using tessera::base::hash_combine;
  using Placement = std::optional<tessera::sharded_tensor::RemoteDevice>;
  size_t seed = hash_combine(0, m.shard_offsets);
  seed = hash_combine(seed, m.shard_sizes);
  return hash_combine(seed, std::hash<Placement>{}(m.placement));
}
