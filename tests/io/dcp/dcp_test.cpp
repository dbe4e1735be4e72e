#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <random>

#include <io/checksum/crc32.h>
#include <io/dcp/item.h>
#include <io/dcp/metadata.h>
#include <io/dcp/pickle_writer.h>
#include <io/files/error.h>

#include "io/example.h"

namespace tessera::detail {
namespace {

using io_test::message_of;
using io_test::read_bytes;
using io_test::read_example;
using io_test::save_example;
using io_test::TemporaryFolder;
using io_test::write_bytes;

io::Contents example() {
  io::Contents contents;
  contents.files = {{"__0_0.distcp", 0}, {"__1_0.distcp", 0}};
  io::Entry w;
  w.name = "a.w";
  w.path = {"a", "w"};
  w.dtype = io::Dtype::kFloat8E4M3FN;
  w.shape = {4, 6};
  w.chunks.push_back({{{0, 0}, {2, 6}}, {0, 0, 100, 0, {}}});
  w.chunks.push_back({{{2, 0}, {2, 6}}, {1, int64_t{1} << 33, 100, 0, {}}});
  io::Entry scalar;
  scalar.name = "s";
  scalar.path = {"l", int64_t{1}, "s"};
  scalar.dtype = io::Dtype::kInt64;
  scalar.chunks.push_back({{{}, {}}, {0, 100, 50, 0, {}}});
  io::Entry value;
  value.name = "v";
  value.path = {"v"};
  value.stored_value = io::StoredBytes{1, 7, 30, 0, {}};
  contents.entries = {w, scalar, value};
  return contents;
}

TEST(DcpMetadataTest, ReadsBackWhatItWrites) {
  const io::Contents contents = example();
  const io::Contents back =
      parse_dcp_metadata("m", print_dcp_metadata(contents));
  EXPECT_EQ(back.files, contents.files);
  ASSERT_EQ(back.entries.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(back.entries[i].name, contents.entries[i].name);
    EXPECT_EQ(back.entries[i].path, contents.entries[i].path);
    EXPECT_EQ(back.entries[i].dtype, contents.entries[i].dtype);
    EXPECT_EQ(back.entries[i].shape, contents.entries[i].shape);
    EXPECT_EQ(back.entries[i].chunks, contents.entries[i].chunks);
    EXPECT_EQ(back.entries[i].stored_value, contents.entries[i].stored_value);
  }
}

TEST(DcpMetadataTest, RefusesPathsAndObjectsThatMakeNoSense) {
  const std::string good = print_dcp_metadata(example());
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return message_of(
        [&] { parse_dcp_metadata("m", text.replace(at, from.size(), to)); });
  };
  EXPECT_NE(
      changed("__0_0.distcp", "../0.distcp!").find("has a '/'"),
      std::string::npos);
  EXPECT_NE(
      changed("__0_0.distcp", "/etc/passwd!").find("has a '/'"),
      std::string::npos);
  EXPECT_NE(
      changed("\nMetadata\n", "\nMetadato\n")
          .find("expected an object Metadata, found torch.distributed"),
      std::string::npos);
  EXPECT_NE(
      changed("storage_data", "storage_dato").find("lacks the member"),
      std::string::npos);
  EXPECT_NE(
      changed("float8_e4m3fn", "float9_e4m3fn").find("float9_e4m3fn"),
      std::string::npos);
  EXPECT_NE(
      changed("_StorageInfo", "_StorageInfa").find("_StorageInfo"),
      std::string::npos);
}

TEST(DcpMetadataTest, NoFlippedBitCrashes) {
  const std::string good = print_dcp_metadata(example());
  for (size_t i = 0; i < good.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = good;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      message_of([&] { parse_dcp_metadata("m", damaged); });
    }
  }
}

// 100,000 flips in the long form.
TEST(DcpReaderTest, FlipsOfPayloadsAreFoundWhateverPartIsRead) {
  const TemporaryFolder folder;
  save_example(folder / "step", io::Format::kDcp, 3);
  const std::string path = folder / "step/__1_0.distcp";
  const std::string bytes = read_bytes(path);
  const size_t payload = bytes.find(io_test::make_bytes(9, 9, 3));
  ASSERT_NE(payload, std::string::npos);
  const auto reader = io::open_checkpoint(folder / "step");
  const io::Entry& rows = *reader->find("rows");
  const int file = ::open(path.c_str(), O_RDWR);
  ASSERT_GE(file, 0);
  std::mt19937 random(9);
  int32_t element = 0;
  for (int i = 0; i < (io_test::is_long() ? 100000 : 5000); ++i) {
    const size_t at = payload + random() % 36;
    const auto flipped = static_cast<char>(bytes[at] ^ (1 << (random() % 8)));
    ASSERT_EQ(::pwrite(file, &flipped, 1, static_cast<off_t>(at)), 1);
    const int64_t column = random() % 3;
    ASSERT_NE(
        message_of([&] {
          reader->read(rows, {{4, column}, {1, 1}}, {&element});
        }).find("is damaged: its CRC32"),
        std::string::npos);
    ASSERT_EQ(::pwrite(file, &bytes[at], 1, static_cast<off_t>(at)), 1);
  }
  ::close(file);
}

TEST(DcpReaderTest, MissingAndSwappedFilesAreFound) {
  const TemporaryFolder folder;
  save_example(folder / "step", io::Format::kDcp, 3);
  const std::string one = folder / "step/__1_0.distcp";
  const std::string three = folder / "step/__3_0.distcp";
  const std::string bytes = read_bytes(one);
  std::filesystem::remove(one);
  EXPECT_NE(
      message_of([&] { read_example(folder / "step"); }).find("No such file"),
      std::string::npos);
  write_bytes(one, read_bytes(three));
  EXPECT_NE(message_of([&] { read_example(folder / "step"); }), "no error");
  std::filesystem::remove(one);
  std::filesystem::create_symlink(three, one);
  EXPECT_NE(
      message_of([&] { read_example(folder / "step"); }).find("symbolic link"),
      std::string::npos);
}

// Items as a writer of strange tensors would make them.
std::string tensor_item(
    const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides,
    int64_t first, int64_t count, const std::string& payload,
    const char* type = "IntStorage") {
  PickleWriter out;
  out.global("torch._utils", "_rebuild_tensor_v2").begin_tuple();
  out.begin_tuple().string("storage").global("torch", type).string("0");
  out.string("cpu").integer(count).end_tuple().persistent().integer(first);
  out.integer_tuple(sizes).integer_tuple(strides).boolean(false);
  out.global("collections", "OrderedDict").empty_tuple().reduce();
  out.end_tuple().reduce();
  ZipLayout zip;
  zip.add("x/data.pkl", out.take());
  zip.add_payload("x/data/0", payload.size());
  return zip.before() + payload +
         zip.after(crc32(payload.data(), payload.size()));
}

TEST(DcpItemTest, StridesAndOffsetsOfTheStorageAreHonoured) {
  const std::string payload = io_test::make_bytes(0, 10, 0);
  const ByteSource source("f", tensor_item({3, 2}, {1, 3}, 2, 10, payload));
  const TensorItem item = read_tensor_item(StoredZip(source));
  EXPECT_EQ(item.dtype, io::Dtype::kInt32);
  EXPECT_EQ(item.sizes, (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(item.strides, (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(item.first_element, 2u);
  EXPECT_EQ(item.storage.bytes, 40u);
}

TEST(DcpItemTest, StoragesThatDisagreeAreRefused) {
  const std::string payload = io_test::make_bytes(0, 10, 0);
  const auto problem = [&](const std::string& bytes) {
    return message_of([&] {
      const ByteSource source("f", bytes);
      read_tensor_item(StoredZip(source));
    });
  };
  EXPECT_NE(
      problem(tensor_item({2}, {1}, 0, 11, payload))
          .find("11 elements has a record of 40 bytes"),
      std::string::npos);
  EXPECT_NE(
      problem(tensor_item({2}, {1}, 0, INT64_MAX, payload))
          .find("has a record"),
      std::string::npos);
  EXPECT_NE(
      problem(tensor_item({2}, {1}, -1, 10, payload)).find("another form"),
      std::string::npos);
  EXPECT_NE(
      problem(tensor_item({2}, {1}, 0, 10, payload, "QInt32Storage"))
          .find("torch.QInt32Storage is not read"),
      std::string::npos);
}

}  // namespace
}  // namespace tessera::detail
