// Recognising formats, and paths that are links.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include <io/files/error.h>

#include "io/example.h"

namespace tessera::io_test {
namespace {

TEST(OpenCheckpointTest, SaysWhatIsMissing) {
  const TemporaryFolder folder;
  EXPECT_NE(
      message_of([&] {
        io::open_checkpoint(folder / "none");
      }).find("none: open the folder: No such file"),
      std::string::npos);
  std::filesystem::create_directory(folder / "empty");
  EXPECT_NE(
      message_of([&] {
        io::open_checkpoint(folder / "empty");
      }).find("holds no checkpoint"),
      std::string::npos);
  write_bytes(folder / "file", "text");
  EXPECT_NE(
      message_of([&] {
        io::open_checkpoint(folder / "file");
      }).find("is no safetensors file"),
      std::string::npos);
}

TEST(OpenCheckpointTest, AFolderHasOneFormat) {
  const TemporaryFolder folder;
  save_example(folder / "step", io::Format::kTessera, 1);
  write_bytes(folder / "step/.metadata", "x");
  EXPECT_NE(
      message_of([&] {
        io::open_checkpoint(folder / "step");
      }).find("several formats"),
      std::string::npos);
}

TEST(OpenCheckpointTest, ThePathOfTheUserMayBeALink) {
  const TemporaryFolder folder;
  save_example(folder / "step", io::Format::kDcp, 6);
  std::filesystem::create_directory_symlink(folder / "step", folder / "link");
  EXPECT_EQ(read_example(folder / "link"), 6);
}

TEST(OpenCheckpointTest, FilesThatAreLinksAreFollowedWhereAskedFor) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "blobs");
  std::filesystem::create_directory(folder / "snapshot");
  write_bytes(
      folder / "blobs/0",
      std::string("\x35\0\0\0\0\0\0\0", 8) +
          R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})" + "xy");
  std::filesystem::create_symlink(
      folder / "blobs/0", folder / "snapshot/model.safetensors");
  EXPECT_NE(
      message_of([&] {
        io::open_checkpoint(folder / "snapshot");
      }).find("symbolic link"),
      std::string::npos);
  std::string text(2, ' ');
  for (const auto& reader :
       {io::open_checkpoint(folder / "snapshot", {.follow_links = true}),
        io::open_checkpoint(folder / "snapshot/model.safetensors")}) {
    reader->read(*reader->find("a"), {{0}, {2}}, {text.data()});
    EXPECT_EQ(text, "xy");
  }
}

TEST(ReaderTest, RefusesBoxesAndKindsThatDoNotFit) {
  const TemporaryFolder folder;
  save_example(folder / "step", io::Format::kTessera, 6);
  const auto reader = io::open_checkpoint(folder / "step");
  const io::Entry& rows = *reader->find("rows");
  std::string out(200, ' ');
  EXPECT_NE(
      message_of([&] {
        reader->read(rows, {{8, 0}, {3, 3}}, {out.data()});
      }).find("is no part of the shape [10, 3]"),
      std::string::npos);
  EXPECT_NE(
      message_of([&] {
        reader->read_chunk(rows, 0, {{2, 0}, {2, 3}}, {out.data()});
      }).find("does not lie in chunk 0"),
      std::string::npos);
  EXPECT_NE(
      message_of([&] { reader->read_value(rows); }).find("is a tensor"),
      std::string::npos);
  EXPECT_NE(
      message_of([&] {
        reader->read(*reader->find("seed"), {}, {out.data()});
      }).find("is no tensor"),
      std::string::npos);
  EXPECT_EQ(reader->find("none"), nullptr);
}

TEST(ReaderTest, ReadsBoxesOverSeveralChunksIntoStridedMemory) {
  for (const io::Format format :
       {io::Format::kTessera, io::Format::kDcp, io::Format::kSafetensors}) {
    const TemporaryFolder folder;
    save_example(folder / "step", format, 6);
    const auto reader = io::open_checkpoint(folder / "step");
    // Rows 2 to 7, columns 1 and 2, transposed: 2 x 6 out of three chunks.
    std::vector<int32_t> out(12, -1);
    reader->read(*reader->find("rows"), {{2, 1}, {6, 2}}, {out.data(), {1, 6}});
    for (int32_t row = 2; row < 8; ++row) {
      for (int32_t column = 1; column < 3; ++column) {
        EXPECT_EQ(
            out[static_cast<size_t>((column - 1) * 6 + row - 2)],
            (row * 3 + column) * 7 + 6 * 1000003);
      }
    }
  }
}

}  // namespace
}  // namespace tessera::io_test
