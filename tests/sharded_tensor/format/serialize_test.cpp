#include <tessera/sharded_tensor/serialize.h>

#include <gtest/gtest.h>

#include "sharded_tensor/format/codec.h"
#include "sharded_tensor/format/saved_examples.h"
#include "sharded_tensor/spec/expect_torch_error.h"
#include "sharded_tensor/spec/grid_spec.h"

namespace tessera::sharded_tensor {
namespace {

using format::frame;
using format::Kind;
using format::Writer;

// The frame of a payload that `write` writes.
template <class Write>
std::string framed(Kind kind, const Write& write) {
  Writer out;
  write(out);
  return frame(kind, out.bytes());
}

TEST(Serialize, EveryKindRoundTrips) {
  for (const Saved& saved : saved_examples()) {
    const SavedKind& kind = saved_kinds()[saved.kind];
    SCOPED_TRACE(kind.name);
    EXPECT_EQ(kind.rewrite(saved.text), saved.text);
  }
}

TEST(Serialize, ValuesComeBackEqual) {
  const ShardMetadata shard({3, 0}, {4, 5}, "worker7/cuda:1");
  const ChunkShardingSpec chunk(-2, {"rank:1", "cpu", "worker0"});
  const EnumerableShardingSpec list({shard, {{0, 0}, {3, 5}}});
  const ShardedTensorMetadata whole{list.shards(), {7, 5}, {}};
  EXPECT_EQ(deserialize<ShardMetadata>(serialize(shard)), shard);
  EXPECT_EQ(deserialize<ShardedTensorMetadata>(serialize(whole)), whole);
  EXPECT_EQ(*deserialize<ShardingSpecPtr>(serialize(chunk)), chunk);
  EXPECT_EQ(*deserialize<ShardingSpecPtr>(serialize(list)), list);
}

TEST(Serialize, EveryDtypeAndLayoutRoundTrips) {
  int64_t dtypes = 0;
  for (int i = 0; i < static_cast<int>(c10::ScalarType::NumOptions); ++i) {
    TensorProperties properties{.dtype = static_cast<c10::ScalarType>(i)};
    if (properties.dtype == c10::ScalarType::Undefined) {
      EXPECT_VALUE_ERROR(serialize(properties), "is no code of dtype");
      continue;
    }
    ++dtypes;
    for (int j = 0; j < static_cast<int>(c10::Layout::NumOptions); ++j) {
      properties.layout = static_cast<c10::Layout>(j);
      EXPECT_EQ(
          deserialize<TensorProperties>(serialize(properties)), properties);
    }
  }
  EXPECT_GE(dtypes, 40);
}

TEST(Serialize, TheBytesAreThoseOfVersion1) {
  const std::string bytes = serialize(ShardMetadata({258}, {3}, "rank:1"));
  const auto zeros = [](size_t count) { return std::string(count, '\0'); };
  EXPECT_EQ(
      bytes.substr(0, bytes.size() - 8),
      "TESS" + std::string("\1\0\2\0", 4) + "\x32" + zeros(7) + "\1" +
          zeros(7) + "\2\1" + zeros(6) + "\1" + zeros(7) + "\3" + zeros(7) +
          "\x0a" + zeros(7) + "rank:1/cpu");
  EXPECT_EQ(
      bytes.substr(bytes.size() - 8),
      std::string("\x3a\x54\xb3\xac\xb3\xd1\xd1\xda"));
}

TEST(Serialize, RefusesWhatCouldNotBeRead) {
  ShardMetadata shard({0}, {1});
  shard.shard_sizes = {-1};
  EXPECT_VALUE_ERROR(serialize(shard), "is negative");
  shard.shard_sizes = {1, 1};
  EXPECT_VALUE_ERROR(serialize(shard), "1 offsets and 2 sizes");
  EXPECT_VALUE_ERROR(
      serialize(ShardedTensorMetadata{.size = {-1}}), "is negative");
  const std::vector<int64_t> many(65, 1);
  EXPECT_VALUE_ERROR(
      serialize(ShardMetadata(many, many)), "at most 64 dims can be saved");
  const std::vector<int64_t> most(64, 1);
  EXPECT_NO_THROW(
      deserialize<ShardMetadata>(serialize(ShardMetadata(most, most))));
}

TEST(Deserialize, RefusesOtherFrames) {
  const std::string good = serialize(RemoteDevice("cpu"));
  const auto read = [](const std::string& bytes) {
    return deserialize<RemoteDevice>(bytes);
  };
  EXPECT_VALUE_ERROR(read(""), "4 bytes are wanted and 0 are left");
  EXPECT_VALUE_ERROR(read("TES"), "4 bytes are wanted and 3 are left");
  EXPECT_VALUE_ERROR(read("device cpu"), "do not begin with TESS");
  EXPECT_VALUE_ERROR(read("TESS"), "2 bytes are wanted and 0 are left");
  std::string other = good;
  other[4] = 2;
  EXPECT_VALUE_ERROR(read(other), "version 2 is not known");
  EXPECT_VALUE_ERROR(
      deserialize<ShardMetadata>(good),
      "deserialize ShardMetadata: the bytes hold kind 1 (RemoteDevice), not 2");
  other = good;
  other[6] = 99;
  EXPECT_VALUE_ERROR(read(other), "kind 99 (unknown)");
  other = good;
  other[8] = 100;
  EXPECT_VALUE_ERROR(read(other), "a count of 100 exceeds the 19 bytes left");
  other = good;
  other[20] = 'x';
  EXPECT_VALUE_ERROR(read(other), "the bytes are damaged");
  EXPECT_VALUE_ERROR(read(good + "x"), "the bytes are damaged");
  EXPECT_VALUE_ERROR(read(good + good), "the bytes are damaged");
  EXPECT_VALUE_ERROR(
      read(good.substr(0, good.size() - 1)), "the bytes are damaged");
}

TEST(Deserialize, RefusesPayloadsWithAGoodChecksum) {
  const auto device = [](const std::string& text) {
    return deserialize<RemoteDevice>(
        framed(Kind::kRemoteDevice, [&](Writer& out) { out.string(text); }));
  };
  EXPECT_EQ(device("rank:1/cpu"), RemoteDevice("rank:1"));
  for (const char* text :
       {"", "rank:1", "rank:01/cpu", "cuda:300", "gpu/gpu", "rank:0/cuda:-1",
        "rank:x/cpu", "a/b/c"}) {
    SCOPED_TRACE(text);
    EXPECT_VALUE_ERROR(device(text), "is no device");
  }
  EXPECT_VALUE_ERROR(device("\x1b[2J/gpu"), "'\\x1b[2J/gpu' is no device");
  EXPECT_VALUE_ERROR(
      deserialize<RemoteDevice>(
          frame(Kind::kRemoteDevice, std::string("\3\0\0\0\0\0\0\0cpux", 12))),
      "1 bytes follow the value; at byte 11");

  const auto shard = [](std::vector<int64_t> offsets,
                        std::vector<int64_t> sizes, const char* placement) {
    return deserialize<ShardMetadata>(
        framed(Kind::kShardMetadata, [&](Writer& out) {
          out.ints(offsets);
          out.ints(sizes);
          out.string(placement);
        }));
  };
  EXPECT_EQ(shard({1}, {2}, "none"), ShardMetadata({1}, {2}));
  EXPECT_VALUE_ERROR(shard({1}, {2, 3}, "none"), "1 offsets and 2 sizes");
  EXPECT_VALUE_ERROR(shard({-1}, {2}, "none"), "is negative");
  EXPECT_VALUE_ERROR(shard({1}, {INT64_MAX}, "none"), "ends before 2^63");
  EXPECT_VALUE_ERROR(shard({1}, {2}, ""), "is no device");
  const std::vector<int64_t> many(65, 1);
  EXPECT_VALUE_ERROR(shard(many, many, "none"), "65 dims, more than 64");
  EXPECT_VALUE_ERROR(
      deserialize<ShardedTensorMetadata>(framed(
          Kind::kShardedTensorMetadata,
          [](Writer& out) {
            out.ints({4, -4});
          })),
      "no size of a tensor is negative");
}

TEST(Deserialize, RefusesCodesWithoutAMeaning) {
  const auto read = [](std::vector<uint8_t> codes) {
    return deserialize<TensorProperties>(
        framed(Kind::kTensorProperties, [&](Writer& out) {
          for (const uint8_t code : codes) {
            out.u8(code);
          }
        }));
  };
  EXPECT_EQ(read({6, 0, 0, 0, 0}).dtype, c10::kFloat);
  EXPECT_VALUE_ERROR(read({255, 0, 0, 0, 0}), "255 is no code of dtype");
  EXPECT_VALUE_ERROR(
      read({static_cast<uint8_t>(c10::ScalarType::Undefined), 0, 0, 0, 0}),
      "is no code of dtype");
  EXPECT_VALUE_ERROR(read({6, 99, 0, 0, 0}), "99 is no code of layout");
  EXPECT_VALUE_ERROR(read({6, 0, 2, 0, 0}), "2 is no code of requires_grad");
  EXPECT_VALUE_ERROR(read({6, 0, 0, 3, 0}), "3 is no code of memory_format");
  EXPECT_VALUE_ERROR(read({6, 0, 0, 0, 2}), "2 is no code of pin_memory");
  EXPECT_VALUE_ERROR(read({6, 0, 0, 0}), "1 bytes are wanted and 0 are left");
}

TEST(Deserialize, CountsAreBoundByTheBytesLeft) {
  const auto huge = [](Kind kind, const char* name) {
    return framed(kind, [&](Writer& out) {
      if (*name != '\0') {
        out.string(name);
      }
      if (std::string(name) == "ChunkShardingSpec") {
        out.i64(0);
      }
      out.u64(UINT64_MAX / 8);
    });
  };
  EXPECT_VALUE_ERROR(
      deserialize<RemoteDevice>(huge(Kind::kRemoteDevice, "")), "a count of");
  EXPECT_VALUE_ERROR(
      deserialize<ShardMetadata>(huge(Kind::kShardMetadata, "")), "a count of");
  for (const char* name : {"ChunkShardingSpec", "EnumerableShardingSpec"}) {
    EXPECT_VALUE_ERROR(
        deserialize<ShardingSpecPtr>(huge(Kind::kShardingSpec, name)),
        "a count of");
  }
}

TEST(Deserialize, SpecsAreCheckedLikeAnyOther) {
  const auto read = [](const std::vector<ShardMetadata>& shards) {
    return deserialize<ShardingSpecPtr>(
        framed(Kind::kShardingSpec, [&](Writer& out) {
          out.string("EnumerableShardingSpec");
          out.u64(shards.size());
          for (const ShardMetadata& shard : shards) {
            out.ints(shard.shard_offsets);
            out.ints(shard.shard_sizes);
            out.string("none");
          }
        }));
  };
  EXPECT_EQ(read({{{0}, {2}}})->name(), "EnumerableShardingSpec");
  EXPECT_VALUE_ERROR(read({}), "at least one shard is needed");
  EXPECT_VALUE_ERROR(read({{{0}, {2}}, {{1}, {2}}}), "must not overlap");
  EXPECT_VALUE_ERROR(read({{{0}, {2}}, {{}, {}}}), "as many dims");
}

TEST(RegisterShardingSpec, ReadsWhatAUsersSpecEncodes) {
  const ShardingSpecPtr grid = GridSpec::decode("3");
  const std::string bytes = serialize(*grid);
  EXPECT_VALUE_ERROR(
      deserialize<ShardingSpecPtr>(bytes),
      "no decoder of 'GridSpec' is known; name one by "
      "register_sharding_spec()");
  register_sharding_spec("GridSpec", GridSpec::decode);
  EXPECT_EQ(*deserialize<ShardingSpecPtr>(bytes), *grid);
  EXPECT_VALUE_ERROR(
      register_sharding_spec("GridSpec", GridSpec::decode),
      "GridSpec has a decoder already");
  EXPECT_VALUE_ERROR(
      register_sharding_spec("ChunkShardingSpec", GridSpec::decode),
      "is a spec of the library");
  EXPECT_VALUE_ERROR(
      register_sharding_spec("", GridSpec::decode), "a name and a decoder");
  EXPECT_VALUE_ERROR(
      register_sharding_spec("Other", nullptr), "and no decoder");
}

TEST(RegisterShardingSpec, ADecodersErrorIsAValueError) {
  register_sharding_spec(
      "Nothing", [](const std::string&) { return ShardingSpecPtr(); });
  register_sharding_spec("Failing", GridSpec::decode);
  const auto read = [](const char* name, const char* payload) {
    return deserialize<ShardingSpecPtr>(
        framed(Kind::kShardingSpec, [&](Writer& out) {
          out.string(name);
          out.string(payload);
        }));
  };
  EXPECT_VALUE_ERROR(read("Nothing", "1"), "'Nothing' returned nothing");
  EXPECT_VALUE_ERROR(read("Failing", "100"), "'Failing': GridSpec: a side");
  EXPECT_VALUE_ERROR(read("Failing", "x"), "'Failing': stoll");
}

TEST(RegisterShardingSpec, ASpecWithoutEncodingIsRefused) {
  class Mute : public GridSpec {
   public:
    using GridSpec::GridSpec;
    std::string encode() const override { return {}; }
    std::string name() const override { return "Mute"; }
  };
  EXPECT_VALUE_ERROR(
      serialize(Mute(1, {"rank:0"})),
      "Mute has no encode(); return what describes the spec there");
  class Impostor : public ChunkShardingSpec {
   public:
    using ChunkShardingSpec::ChunkShardingSpec;
  };
  EXPECT_VALUE_ERROR(serialize(Impostor(0, {"rank:0"})), "a name() of its own");
}

TEST(Encode, IsThePayloadThatFollowsTheName) {
  const ChunkShardingSpec spec(1, {"rank:0"});
  EXPECT_EQ(serialize(spec), framed(Kind::kShardingSpec, [&](Writer& out) {
              out.string(spec.name());
              out.raw(spec.encode());
            }));
  EXPECT_NE(spec.encode(), ChunkShardingSpec(-1, {"rank:0"}).encode());
}

}  // namespace
}  // namespace tessera::sharded_tensor
