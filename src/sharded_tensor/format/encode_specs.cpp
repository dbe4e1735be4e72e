#include <typeinfo>

#include <c10/util/Exception.h>

#include "sharded_tensor/format/encode_types.h"
#include "sharded_tensor/spec/spec_registry.h"

namespace tessera::sharded_tensor::format {

namespace {

// A placement in bytes: its length, and "cpu" or longer.
constexpr size_t kLeastPlacementBytes = 8;

void write_spec(Encoder& out, const ChunkShardingSpec& spec) {
  out.number("dim", spec.dim());
  out.count("placements", spec.placements().size());
  for (const RemoteDevice& placement : spec.placements()) {
    encode_value(out, placement);
  }
}

void write_spec(Encoder& out, const EnumerableShardingSpec& spec) {
  write_shards(out, spec.shards());
}

ShardingSpecPtr read_chunks(Decoder& in) {
  const int64_t dim = in.number("dim");
  const size_t count = in.count("placements", kLeastPlacementBytes);
  std::vector<RemoteDevice> placements;
  placements.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    placements.push_back(read_remote_device(in));
  }
  return std::make_shared<ChunkShardingSpec>(dim, std::move(placements));
}

ShardingSpecPtr read_enumerable(Decoder& in) {
  std::vector<ShardMetadata> shards = read_shards(in);
  try {
    return std::make_shared<EnumerableShardingSpec>(std::move(shards));
  } catch (const c10::Error& error) {
    in.fail(error.what_without_backtrace());
  }
}

void write_user_spec(Encoder& out, const ShardingSpec& spec) {
  const std::string name = spec.name();
  TORCH_CHECK_VALUE(
      !name.empty() && !is_built_in(name),
      "serialize: a user's spec needs a name() of its own; got '", name, "'");
  const std::string payload = spec.encode();
  TORCH_CHECK_VALUE(
      !payload.empty(), "serialize: ", name,
      " has no encode(); return what describes the spec there and name what "
      "reads it by register_sharding_spec()");
  out.text("name", name);
  out.text("payload", payload);
}

ShardingSpecPtr read_user_spec(Decoder& in, const std::string& name) {
  const std::string payload = in.text("payload");
  const SpecDecoder decode = find_spec_decoder(name);
  const std::string shown = escape(name.substr(0, 60));
  if (!decode) {
    in.fail(
        "no decoder of '" + shown +
        "' is known; name one by register_sharding_spec()");
  }
  ShardingSpecPtr spec;
  try {
    spec = decode(payload);
  } catch (const c10::Error& error) {
    in.fail(
        "the decoder of '" + shown + "': " + error.what_without_backtrace());
  } catch (const std::exception& error) {
    in.fail("the decoder of '" + shown + "': " + error.what());
  }
  if (!spec) {
    in.fail("the decoder of '" + shown + "' returned nothing");
  }
  return spec;
}

template <class Spec>
std::string encoded(const Spec& spec) {
  ByteEncoder out;
  write_spec(out, spec);
  return out.take();
}

}  // namespace

std::string encode_fields(const ChunkShardingSpec& spec) {
  return encoded(spec);
}

std::string encode_fields(const EnumerableShardingSpec& spec) {
  return encoded(spec);
}

void encode_value(Encoder& out, const ShardingSpec& value) {
  // Not by a cast: a user's spec may be derived from one of the library.
  if (typeid(value) == typeid(ChunkShardingSpec)) {
    out.text("name", kChunkName);
    write_spec(out, static_cast<const ChunkShardingSpec&>(value));
  } else if (typeid(value) == typeid(EnumerableShardingSpec)) {
    out.text("name", kEnumerableName);
    write_spec(out, static_cast<const EnumerableShardingSpec&>(value));
  } else {
    write_user_spec(out, value);
  }
}

ShardingSpecPtr read_sharding_spec(Decoder& in) {
  const std::string name = in.text("name");
  if (name == kChunkName) {
    return read_chunks(in);
  }
  return name == kEnumerableName ? read_enumerable(in)
                                 : read_user_spec(in, name);
}

}  // namespace tessera::sharded_tensor::format

namespace tessera::sharded_tensor {

std::string ChunkShardingSpec::encode() const {
  return format::encode_fields(*this);
}

std::string EnumerableShardingSpec::encode() const {
  return format::encode_fields(*this);
}

}  // namespace tessera::sharded_tensor
