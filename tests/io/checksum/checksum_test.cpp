#include <gtest/gtest.h>

#include <random>
#include <string>

#include <io/checksum/crc32.h>
#include <io/checksum/xxh3.h>

namespace tessera::detail {
namespace {

std::string counted_bytes(size_t size) {
  std::string bytes;
  for (size_t i = 0; i < size; ++i) {
    bytes.push_back(static_cast<char>(i * 131 + (i >> 8) * 17));
  }
  return bytes;
}

// Values of zlib.crc32 and xxhash.xxh3_64 in Python.
TEST(Crc32Test, AgreesWithZlib) {
  EXPECT_EQ(crc32("", 0), 0u);
  EXPECT_EQ(crc32("123456789", 9), 0xcbf43926u);
  const std::string bytes = counted_bytes(100000);
  EXPECT_EQ(crc32(bytes.data(), bytes.size()), 0xff191d61u);
}

TEST(Crc32Test, IsTheSameByTablesAndByFoldingAtEveryLengthAndOffset) {
  const std::string bytes = counted_bytes(700);
  for (size_t begin = 0; begin < 17; ++begin) {
    for (size_t size = 0; size + begin <= bytes.size(); ++size) {
      ASSERT_EQ(
          crc32(bytes.data() + begin, size, 77),
          crc32_by_tables(bytes.data() + begin, size, 77));
    }
  }
}

TEST(Crc32Test, GoesOnAndCombines) {
  const std::string bytes = counted_bytes(5000);
  const uint32_t all = crc32(bytes.data(), bytes.size());
  for (const size_t at : {0, 1, 63, 64, 65, 2500, 4999, 5000}) {
    const uint32_t first = crc32(bytes.data(), at);
    EXPECT_EQ(crc32(bytes.data() + at, bytes.size() - at, first), all);
    const uint32_t second = crc32(bytes.data() + at, bytes.size() - at);
    EXPECT_EQ(combine_crc32(first, second, bytes.size() - at), all);
  }
}

TEST(Xxh3Test, AgreesWithTheLibrary) {
  EXPECT_EQ(xxh3(""), 0x2d06800538d394c2u);
  EXPECT_EQ(xxh3("123456789"), 0x72dcb18b67a17dffu);
  EXPECT_EQ(xxh3(counted_bytes(100000)), 0xafec324e570fb9b5u);
}

// The library without vector instructions gives this; here the processor's are
// used.
TEST(Xxh3Test, AgreesWithTheLibraryAtEveryLengthAndOffset) {
  const std::string bytes = counted_bytes(4000);
  uint64_t at_once = 0;
  uint64_t in_portions = 0;
  for (size_t size = 0; size <= 3000; ++size) {
    const char* begin = bytes.data() + size % 64;
    at_once = at_once * 31 + xxh3(begin, size);
    Xxh3 hash;
    hash.update(begin, size / 3);
    hash.update(begin + size / 3, size - size / 3);
    in_portions = in_portions * 31 + hash.value();
  }
  EXPECT_EQ(at_once, 0x405d8ed6c136f0adu);
  EXPECT_EQ(in_portions, 0x405d8ed6c136f0adu);
}

TEST(Xxh3Test, TakesBytesInAnyPortions) {
  const std::string bytes = counted_bytes(100000);
  std::mt19937 random(3);
  Xxh3 hash;
  for (int round = 0; round < 3; ++round) {
    for (size_t at = 0; at < bytes.size();) {
      const size_t size = std::min<size_t>(random() % 3000, bytes.size() - at);
      hash.update(bytes.data() + at, size);
      at += size;
    }
    EXPECT_EQ(hash.value(), xxh3(bytes));
    hash.reset();
  }
}

TEST(Hex64Test, PrintsAndParses16Digits) {
  uint64_t value = 0;
  EXPECT_EQ(print_hex64(0xabc), "0000000000000abc");
  EXPECT_TRUE(parse_hex64("fedcba9876543210", &value));
  EXPECT_EQ(value, 0xfedcba9876543210u);
  for (const char* text : {"", "abc", "FEDCBA9876543210", "fedcba987654321g"}) {
    EXPECT_FALSE(parse_hex64(text, &value)) << text;
  }
}

}  // namespace
}  // namespace tessera::detail
