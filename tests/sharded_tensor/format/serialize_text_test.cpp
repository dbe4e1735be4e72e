#include <gtest/gtest.h>
#include <tessera/sharded_tensor/serialize.h>

#include "sharded_tensor/spec/expect_torch_error.h"

namespace tessera::sharded_tensor {
namespace {

TEST(SerializeText, HasALinePerField) {
  const ShardedTensorMetadata metadata{
      {{{0, 0}, {5, 20}, "rank:0/cpu"}, {{5, 0}, {5, 20}}}, {10, 20}, {}};
  EXPECT_EQ(
      serialize(metadata, Format::kText),
      "tessera 1 ShardedTensorMetadata\n"
      "size [10, 20]\n"
      "dtype f32\n"
      "layout strided\n"
      "requires_grad false\n"
      "memory_format contiguous\n"
      "pin_memory false\n"
      "shards 2\n"
      "offsets [0, 0]\n"
      "sizes [5, 20]\n"
      "placement rank:0/cpu\n"
      "offsets [5, 0]\n"
      "sizes [5, 20]\n"
      "placement none\n");
  EXPECT_EQ(
      serialize(ChunkShardingSpec(-1, {"rank:0", "worker 1"}), Format::kText),
      "tessera 1 ShardingSpec\n"
      "name ChunkShardingSpec\n"
      "dim -1\n"
      "placements 2\n"
      "device rank:0/cpu\n"
      "device worker 1/cpu\n");
}

TEST(SerializeText, EscapesWhatIsNoPrintableAscii) {
  const RemoteDevice device("a\n\\x41 \xc3\xa9\x7f/cpu");
  const std::string text = serialize(device, Format::kText);
  EXPECT_EQ(
      text,
      "tessera 1 RemoteDevice\ndevice a\\x0a\\x5cx41 \\xc3\\xa9\\x7f/cpu\n");
  EXPECT_EQ(deserialize<RemoteDevice>(text), device);
}

TEST(DeserializeText, RefusesOtherEscapes) {
  for (const char* name :
       {"a\\", "a\\x", "a\\x4", "\\x41", "\\x0A", "\\n", "\\x-1", "\\x0g",
        "\\y0a", "\xc3\xa9", "a\tb", "\\\\"}) {
    SCOPED_TRACE(name);
    EXPECT_VALUE_ERROR(
        deserialize<RemoteDevice>(
            std::string("tessera 1 RemoteDevice\ndevice ") + name + "/cpu\n"),
        "\\xHH for other bytes");
  }
}

TEST(DeserializeText, RefusesOtherLines) {
  const auto read = [](const std::string& lines) {
    return deserialize<ShardMetadata>("tessera 1 ShardMetadata\n" + lines);
  };
  const std::string tail = "sizes [5]\nplacement none\n";
  EXPECT_EQ(read("offsets [0]\n" + tail), ShardMetadata({0}, {5}));
  EXPECT_EQ(
      read("offsets []\nsizes []\nplacement none\n"), ShardMetadata({}, {}));
  for (const char* list :
       {"0", "[0", "0]", "[", "[00]", "[+0]", "[-0]", "[0,]", "[0, ]", "[ 0]",
        "[0 ]", "[0,0]", "[x]", "[9223372036854775808]", "[0x1]", ""}) {
    SCOPED_TRACE(list);
    EXPECT_VALUE_ERROR(
        read(std::string("offsets ") + list + "\n" + tail), "at line 2");
  }
  EXPECT_VALUE_ERROR(read("offset [0]\n" + tail), "expected 'offsets ...'");
  EXPECT_VALUE_ERROR(read("offsets  [0]\n" + tail), "a list like [2, 3]");
  EXPECT_VALUE_ERROR(read("offsets [0]\r\n" + tail), "found '[0]\\x0d'");
  EXPECT_VALUE_ERROR(read("offsets [-1]\n" + tail), "is negative");
  EXPECT_VALUE_ERROR(read("offsets [0]\nsizes [5]\n"), "a line with an end");
  EXPECT_VALUE_ERROR(
      read("offsets [0]\nsizes [5]\nplacement none"), "a line with an end");
  EXPECT_VALUE_ERROR(
      read("offsets [0]\n" + tail + "\n"), "expected the end, found '\\x0a'");
  EXPECT_VALUE_ERROR(
      read("offsets [0]\nsizes [5]\nplacement rank:0\n"), "is no device");
  EXPECT_VALUE_ERROR(
      deserialize<ShardMetadata>("tessera 2 ShardMetadata\n"),
      "expected TESS or 'tessera 1 ShardMetadata'");
  EXPECT_VALUE_ERROR(
      deserialize<RemoteDevice>("tessera 1 ShardMetadata\n"),
      "found 'tessera 1 ShardMetadata'; at line 1");
  EXPECT_VALUE_ERROR(
      deserialize<RemoteDevice>(std::string(100, 'x') + "\n"), "xxx...'");
}

TEST(DeserializeText, RefusesUnknownWordsAndCounts) {
  const auto properties = [](const std::string& dtype, const char* flag) {
    return deserialize<TensorProperties>(
        "tessera 1 TensorProperties\ndtype " + dtype +
        "\nlayout strided\nrequires_grad " + flag +
        "\nmemory_format contiguous\npin_memory false\n");
  };
  EXPECT_EQ(properties("bf16", "true").dtype, c10::kBFloat16);
  EXPECT_VALUE_ERROR(properties("f33", "true"), "expected a dtype, found");
  EXPECT_VALUE_ERROR(properties("", "true"), "expected a dtype, found ''");
  EXPECT_VALUE_ERROR(properties("f32", "1"), "expected a requires_grad");
  const auto spec = [](const std::string& count) {
    return deserialize<ShardingSpecPtr>(
        "tessera 1 ShardingSpec\nname EnumerableShardingSpec\nshards " + count +
        "\n");
  };
  EXPECT_VALUE_ERROR(spec("-1"), "a count of -1");
  EXPECT_VALUE_ERROR(spec("9223372036854775807"), "0 characters left");
  EXPECT_VALUE_ERROR(spec("1"), "a count of 1 exceeds");
  EXPECT_VALUE_ERROR(spec("0"), "at least one shard is needed");
}

}  // namespace
}  // namespace tessera::sharded_tensor
