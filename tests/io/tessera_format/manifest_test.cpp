// Our own format: every damage is found.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <random>

#include <io/checksum/xxh3.h>
#include <io/files/error.h>
#include <io/tessera_format/manifest.h>

#include "io/example.h"

namespace tessera::detail {
namespace {

using io_test::message_of;
using io_test::read_bytes;
using io_test::read_example;
using io_test::save_example;
using io_test::TemporaryFolder;
using io_test::write_bytes;

// Gives a text the checksum that fits it.
std::string sealed(const std::string& lines) {
  return lines + "{\"xxh3\":\"" + print_hex64(xxh3(lines)) + "\"}\n";
}

// Replaces text in a manifest, and seals it again.
std::string changed(
    const std::string& manifest, const std::string& from,
    const std::string& to) {
  std::string lines = manifest.substr(0, manifest.rfind("{\"xxh3\":\""));
  const size_t at = lines.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return sealed(lines.replace(at, from.size(), to));
}

class ManifestTest : public testing::Test {
 protected:
  void SetUp() override {
    save_example(path_, io::Format::kTessera, 7);
    text_ = read_bytes(path_ + "/manifest.jsonl");
  }
  std::string problem(const std::string& text) {
    return message_of([&] { parse_manifest("m", text); });
  }

  TemporaryFolder folder_;
  std::string path_ = folder_ / "step";
  std::string text_;
};

TEST_F(ManifestTest, IsPrintedAsItIsParsed) {
  EXPECT_EQ(print_manifest(parse_manifest("m", text_)), text_);
  EXPECT_EQ(parse_manifest("m", text_).writer, "tessera " TESSERA_VERSION);
}

TEST_F(ManifestTest, EveryFlippedBitIsFound) {
  for (size_t i = 0; i < text_.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = text_;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      ASSERT_NE(problem(damaged), "no error") << "byte " << i;
    }
  }
}

TEST_F(ManifestTest, EveryTruncationAndAdditionIsFound) {
  for (size_t size = 0; size < text_.size(); ++size) {
    ASSERT_NE(problem(text_.substr(0, size)), "no error") << size;
  }
  EXPECT_NE(problem(text_ + "\n").find("checksum"), std::string::npos);
  EXPECT_NE(problem(text_ + text_).find("checksum"), std::string::npos);
}

TEST_F(ManifestTest, SealedTextsThatBreakARuleAreRefused) {
  const std::vector<std::array<std::string, 3>> cases = {
      {"\"version\":1", "\"version\":2", "is version 2 of the format"},
      {"tessera-checkpoint", "other", "the format is 'other'"},
      {"\"files\":4", "\"files\":5", "is wrong"},
      {"\"entries\":6", "\"entries\":9999999", "more than can follow"},
      {"rank_00001.0.bin", "../x", "has a '/'"},
      {"rank_00001.0.bin", "/etc/passwd", "has a '/'"},
      {"rank_00001.0.bin", "..", "is a folder"},
      {"rank_00001.0.bin", "", "is empty"},
      {"rank_00001.0.bin", "a\\u0000b", "control character"},
      {"rank_00001.0.bin", "rank_00000.0.bin", "stands twice"},
      {"\"int32\"", "\"int31\"", "no tensor has the dtype 'int31'"},
      {"\"shape\":[10,3]", "\"shape\":[11,3]", "do not cover"},
      {"\"shape\":[10,3]", "\"shape\":[-10,3]", "no tensor has the shape"},
      {"\"shape\":[10,3]", "\"shape\":[10,9223372036854775807]",
       "no tensor has the shape"},
      {"\"offsets\":[3,0]", "\"offsets\":[2,0]", "do not cover"},
      {"\"offsets\":[3,0]", "\"offsets\":[9,0]", "is no part of the shape"},
      {"\"offsets\":[3,0]", "\"offsets\":[3]", "is no part of the shape"},
      {"\"file\":1,", "\"file\":7,", "lies in file 7"},
      {"\"at\":0,\"bytes\":36", "\"at\":32,\"bytes\":36", "a multiple of 64"},
      {"\"at\":0,\"bytes\":36", "\"at\":18446744073709551552,\"bytes\":36",
       "which has"},
      {"\"at\":0,\"bytes\":36", "\"at\":0,\"bytes\":35", "expected 36 bytes"},
      {"\"window\":1048576", "\"window\":1", "expected 36 checksums"},
      {"\"window\":1048576", "\"window\":0", "expected 0 checksums"},
      {"\"name\":\"empty\"", "\"name\":\"rows\"", "two entries have the name"},
      {"\"name\":\"empty\"", "\"name\":\"\"", "is empty"},
      {"{\"name\":\"rows\"", "{\"name\": \"rows\"", "not written as"},
      {"\"shape\":[10,3]", "\"shape\":[10,3],\"x\":1", "expected the key"},
  };
  for (const auto& [from, to, expected] : cases) {
    const std::string found = problem(changed(text_, from, to));
    EXPECT_NE(found.find(expected), std::string::npos) << to << ": " << found;
  }
}

// The last entry in the line of the checksum, and not counted.
TEST_F(ManifestTest, TextBeforeTheChecksumInItsLineIsFound) {
  std::string lines = text_.substr(0, text_.rfind("{\"xxh3\":\""));
  EXPECT_NE(
      problem(sealed(lines + "x")).find("is not the checksum alone"),
      std::string::npos);
  lines.pop_back();
  const std::string found =
      problem(changed(sealed(lines), "\"entries\":6", "\"entries\":5"));
  EXPECT_NE(found.find("is not the checksum alone"), std::string::npos)
      << found;
}

TEST_F(ManifestTest, TwoEntriesShareNoByte) {
  // Both chunks of rank 3 at byte 0 of its file.
  const std::string found =
      problem(changed(text_, "\"file\":3,\"at\":64", "\"file\":3,\"at\":0"));
  EXPECT_NE(found.find("two entries share byte 0"), std::string::npos) << found;
}

TEST_F(ManifestTest, MissingSwappedAndForeignFilesAreFound) {
  const std::string a = path_ + "/rank_00001.0.bin";
  const std::string b = path_ + "/rank_00002.0.bin";
  const std::string bytes_a = read_bytes(a), bytes_b = read_bytes(b);
  ASSERT_EQ(bytes_a.size(), bytes_b.size());
  const auto problem_of_reading = [&] {
    return message_of([&] { read_example(path_); });
  };
  std::filesystem::remove(a);
  EXPECT_NE(
      problem_of_reading().find("rank_00001.0.bin: open: No such file"),
      std::string::npos);
  write_bytes(a, bytes_b);
  write_bytes(b, bytes_a);
  EXPECT_NE(problem_of_reading().find("are damaged"), std::string::npos);
  write_bytes(b, bytes_b);
  write_bytes(a, bytes_b);  // twice the same
  EXPECT_NE(problem_of_reading().find("are damaged"), std::string::npos);
  // Of the same checkpoint one step later.
  save_example(folder_ / "later", io::Format::kTessera, 8);
  write_bytes(a, read_bytes(folder_ / "later/rank_00001.0.bin"));
  EXPECT_NE(problem_of_reading().find("are damaged"), std::string::npos);
  std::filesystem::remove(a);
  std::filesystem::create_symlink(folder_ / "later/rank_00001.0.bin", a);
  EXPECT_NE(problem_of_reading().find("symbolic link"), std::string::npos);
  std::filesystem::remove(a);
  write_bytes(a, bytes_a);
  EXPECT_EQ(read_example(path_), 7);
}

TEST_F(ManifestTest, BytesBehindADataFileAreFound) {
  const std::string name = path_ + "/rank_00000.0.bin";
  write_bytes(name, read_bytes(name) + "x");
  EXPECT_NE(
      message_of([&] { read_example(path_); }).find("the manifest says"),
      std::string::npos);
}

TEST_F(ManifestTest, DataFilesOfOtherCheckpointsAreFound) {
  write_bytes(path_ + "/rank_00004.0.bin", "of a save by more ranks");
  const auto reader = io::open_checkpoint(path_);
  EXPECT_NE(
      message_of([&] {
        reader->verify();
      }).find("rank_00004.0.bin: is not named by the manifest"),
      std::string::npos);
}

TEST_F(ManifestTest, EveryByteOfADataFileIsGuarded) {
  const std::string name = path_ + "/rank_00003.0.bin";
  const std::string bytes = read_bytes(name);
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
    write_bytes(name, damaged);
    // Padding between payloads too.
    const std::string found = message_of([&] { read_example(path_); });
    ASSERT_TRUE(
        found.find("are damaged") != std::string::npos ||
        found.find("are not zero") != std::string::npos)
        << found;
  }
}

TEST_F(ManifestTest, AHundredThousandFlipsOfPayloadsAreFound) {
  const std::string name = path_ + "/rank_00002.0.bin";
  const std::string bytes = read_bytes(name);
  const auto reader = io::open_checkpoint(path_);
  const io::Entry& rows = *reader->find("rows");
  const int file = ::open(name.c_str(), O_RDWR);
  ASSERT_GE(file, 0);
  std::mt19937 random(5);
  std::string out(36, '\0');
  int found = 0;
  for (int i = 0; i < 100000; ++i) {
    const size_t at = random() % bytes.size();
    const auto flipped = static_cast<char>(bytes[at] ^ (1 << (random() % 8)));
    ASSERT_EQ(::pwrite(file, &flipped, 1, static_cast<off_t>(at)), 1);
    try {
      reader->read(rows, {{6, 0}, {3, 3}}, {out.data()});
    } catch (const io::Error&) {
      ++found;
    }
    ASSERT_EQ(::pwrite(file, &bytes[at], 1, static_cast<off_t>(at)), 1);
  }
  ::close(file);
  EXPECT_EQ(found, 100000);
}

TEST(WindowOfTest, IsAMebibyteUntilThereAreTooMany) {
  EXPECT_EQ(window_of(0), 1u << 20);
  EXPECT_EQ(window_of(uint64_t{1} << 30), 1u << 20);
  EXPECT_EQ(window_of((uint64_t{1} << 30) + 1024), 2u << 20);
  EXPECT_EQ(window_of(uint64_t{10} << 30), 16u << 20);
}

TEST(TesseraReaderTest, ReadsPartsOfLargeChunksByWindows) {
  const TemporaryFolder folder;
  const std::string bytes = io_test::make_bytes(0, 1000 * 1000, 3);  // 4 MB
  {
    io::Save save(folder / "large", {});
    io::RankContents contents;
    contents.chunks.push_back(
        {"w", {}, io::Dtype::kInt32, {1000, 1000}, {{0, 0}, {1000, 1000}}});
    const auto writer = io::open_rank_writer(save.ticket(), 0, contents);
    for (size_t at = 0; at < bytes.size(); at += 300000) {
      writer->append(
          0, bytes.data() + at, std::min<size_t>(300000, bytes.size() - at));
    }
    save.commit({writer->finish()});
  }
  const auto reader = io::open_checkpoint(folder / "large");
  const io::Entry& w = *reader->find("w");
  EXPECT_EQ(w.chunks[0].stored.xxh3.size(), 4u);
  std::string all(bytes.size(), '\0');
  reader->read(w, io::box_of(w.shape), {all.data()});
  EXPECT_EQ(all, bytes);
  // Damage in the last window is seen by those who read it, and only by them.
  const std::string name = folder / "large/rank_00000.0.bin";
  std::string damaged = bytes;
  damaged.back() = static_cast<char>(damaged.back() ^ 1);
  write_bytes(name, damaged);
  std::string row(4000, '\0');
  reader->read(w, {{700, 0}, {1, 1000}}, {row.data()});
  EXPECT_EQ(row, bytes.substr(700 * 4000, 4000));
  EXPECT_NE(
      message_of([&] {
        reader->read(w, {{800, 0}, {1, 1000}}, {row.data()});
      }).find("bytes 3145728 to 4000000, of 'w', are damaged"),
      std::string::npos);
}

}  // namespace
}  // namespace tessera::detail
