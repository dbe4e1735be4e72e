#include <typeinfo>

#include <c10/util/Exception.h>

#include "base/escape.h"
#include "sharded_tensor/format/encode.h"
#include "sharded_tensor/spec/spec_registry.h"

namespace tessera::sharded_tensor::format {

namespace {

// A placement in bytes: its length, and "cpu" or longer.
constexpr size_t kLeastPlacementBytes = 8;

void encode_fields(Writer& out, const ChunkShardingSpec& spec) {
  out.i64(spec.dim());
  out.u64(spec.placements().size());
  for (const RemoteDevice& placement : spec.placements()) {
    encode(out, placement);
  }
}

void encode_fields(Writer& out, const EnumerableShardingSpec& spec) {
  encode_shards(out, spec.shards());
}

ShardingSpecPtr decode_chunks(Reader& in) {
  const int64_t dim = in.i64();
  const size_t count = in.count(kLeastPlacementBytes);
  std::vector<RemoteDevice> placements;
  placements.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    placements.push_back(decode_remote_device(in));
  }
  return std::make_shared<ChunkShardingSpec>(dim, std::move(placements));
}

ShardingSpecPtr decode_enumerable(Reader& in) {
  std::vector<ShardMetadata> shards = decode_shards(in);
  try {
    return std::make_shared<EnumerableShardingSpec>(std::move(shards));
  } catch (const c10::Error& error) {
    in.fail(error.what_without_backtrace());
  }
}

void encode_user_spec(Writer& out, const ShardingSpec& spec) {
  const std::string name = spec.name();
  TORCH_CHECK_VALUE(
      !name.empty() && !is_built_in(name),
      "serialize: a user's spec needs a name() of its own; got '", name, "'");
  const std::string payload = spec.encode();
  TORCH_CHECK_VALUE(
      !payload.empty(), "serialize: ", name,
      " has no encode(); return what describes the spec there and name what "
      "reads it by register_sharding_spec()");
  out.string(name);
  out.string(payload);
}

ShardingSpecPtr decode_user_spec(Reader& in, const std::string& name) {
  const std::string payload = in.string();
  const SpecDecoder decode = find_spec_decoder(name);
  const std::string shown = base::escape(name.substr(0, 60));
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

}  // namespace

void encode(Writer& out, const ShardingSpec& value) {
  // Not by a cast: a user's spec may be derived from one of the library.
  if (typeid(value) == typeid(ChunkShardingSpec)) {
    out.string(kChunkName);
    encode_fields(out, static_cast<const ChunkShardingSpec&>(value));
  } else if (typeid(value) == typeid(EnumerableShardingSpec)) {
    out.string(kEnumerableName);
    encode_fields(out, static_cast<const EnumerableShardingSpec&>(value));
  } else {
    encode_user_spec(out, value);
  }
}

ShardingSpecPtr decode_sharding_spec(Reader& in) {
  const std::string name = in.string();
  if (name == kChunkName) {
    return decode_chunks(in);
  }
  return name == kEnumerableName ? decode_enumerable(in)
                                 : decode_user_spec(in, name);
}

}  // namespace tessera::sharded_tensor::format

namespace tessera::sharded_tensor {

std::string ChunkShardingSpec::encode() const {
  format::Writer out;
  format::encode_fields(out, *this);
  return out.take();
}

std::string EnumerableShardingSpec::encode() const {
  format::Writer out;
  format::encode_fields(out, *this);
  return out.take();
}

}  // namespace tessera::sharded_tensor
