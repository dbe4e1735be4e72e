#include <gtest/gtest.h>

#include <functional>

#include <io/checksum/crc32.h>
#include <io/dcp/stored_zip.h>
#include <io/dcp/zip_layout.h>
#include <io/files/error.h>

namespace tessera::detail {
namespace {

std::string make_zip(const std::string& payload) {
  ZipLayout layout;
  layout.add("archive/data.pkl", "pickle");
  layout.add_payload("archive/data/0", payload.size());
  layout.add("archive/version", "3\n");
  return layout.before() + payload +
         layout.after(crc32(payload.data(), payload.size()));
}

std::string problem_of(const std::string& bytes) {
  try {
    const ByteSource source("file", bytes);
    const StoredZip zip(source);
    for (const ZipRecord& record : zip.records()) {
      zip.read(record);
    }
  } catch (const io::Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(StoredZipTest, ReadsBackWhatItWrites) {
  const ByteSource source("file", make_zip("payload"));
  const StoredZip zip(source);
  ASSERT_EQ(zip.records().size(), 3u);
  EXPECT_EQ(zip.read(*zip.find("archive/data.pkl")), "pickle");
  EXPECT_EQ(zip.read(*zip.find("archive/data/0")), "payload");
  EXPECT_EQ(zip.read(*zip.find("archive/version")), "3\n");
  EXPECT_EQ(zip.find("archive/data/0")->offset % 64, 0u);
  EXPECT_EQ(zip.find("other"), nullptr);
}

TEST(StoredZipTest, EveryFlipOfWhatTheCrcCoversIsFound) {
  const std::string bytes = make_zip("a payload of some length");
  const ByteSource source("file", bytes);
  const StoredZip zip(source);
  for (const ZipRecord& record : zip.records()) {
    for (uint64_t i = record.offset; i < record.offset + record.bytes; ++i) {
      for (int bit = 0; bit < 8; ++bit) {
        std::string damaged = bytes;
        damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
        ASSERT_NE(
            problem_of(damaged).find("is damaged: its CRC32"),
            std::string::npos);
      }
    }
  }
}

TEST(StoredZipTest, FlipsElsewhereNeverGiveOtherBytes) {
  const std::string bytes = make_zip("a payload");
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = bytes;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      try {
        const ByteSource source("file", damaged);
        const StoredZip zip(source);
        for (const char* name :
             {"archive/data.pkl", "archive/data/0", "archive/version"}) {
          if (const ZipRecord* record = zip.find(name)) {
            const std::string read = zip.read(*record);
            ASSERT_TRUE(
                read == "pickle" || read == "a payload" || read == "3\n");
          }
        }
      } catch (const io::Error&) {
      }
    }
  }
}

TEST(StoredZipTest, EveryTruncationIsFound) {
  const std::string bytes = make_zip("a payload");
  for (size_t size = 0; size < bytes.size(); ++size) {
    ASSERT_NE(problem_of(bytes.substr(0, size)), "no error") << size;
  }
  EXPECT_NE(problem_of(bytes + "x").find("no end record"), std::string::npos);
  EXPECT_NE(problem_of("x" + bytes), "no error");
}

// Replaces a field behind the n-th central record's start.
std::string with_central(
    std::string bytes, size_t offset, const std::string& field) {
  const size_t at = bytes.find("PK\x01\x02");
  return bytes.replace(at + offset, field.size(), field);
}

TEST(StoredZipTest, RefusesTricks) {
  const std::string bytes = make_zip("a payload");
  const auto u16 = [](int value) {
    return std::string{static_cast<char>(value), static_cast<char>(value >> 8)};
  };
  // flags, method, disk number
  EXPECT_NE(
      problem_of(with_central(bytes, 8, u16(1))).find("encrypted"),
      std::string::npos);
  EXPECT_NE(
      problem_of(with_central(bytes, 10, u16(8))).find("compressed"),
      std::string::npos);
  EXPECT_NE(
      problem_of(with_central(bytes, 34, u16(1))).find("is damaged"),
      std::string::npos);
  // two records of one place
  const size_t first = bytes.find("PK\x01\x02");
  const size_t second = bytes.find("PK\x01\x02", first + 1);
  std::string shared = bytes;
  shared.replace(second + 42, 4, std::string(4, '\0'));
  EXPECT_NE(
      problem_of(shared).find("is not where the directory says"),
      std::string::npos);
}

TEST(StoredZipTest, PayloadsOfMoreThan4GiBHaveLongFields) {
  ZipLayout layout;
  layout.add("archive/data.pkl", "pickle");
  const uint64_t bytes = (uint64_t{5} << 30) + 3;
  layout.add_payload("archive/data/0", bytes);
  layout.add("archive/version", "3\n");
  const std::string after = layout.after(7);
  EXPECT_EQ(layout.after(8).size(), after.size());
  // A directory that a reader finds where the payload would be.
  const std::string short_form = layout.before() + after;
  EXPECT_NE(
      short_form.find(std::string("\x01\0\x10\0\x03\0\0\x40\x01\0\0\0", 12)),
      std::string::npos);
}

}  // namespace
}  // namespace tessera::detail
