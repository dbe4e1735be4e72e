#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include <io/files/error.h>
#include <io/safetensors/extra_metadata.h>
#include <io/safetensors/header.h>
#include <io/safetensors/index_file.h>

#include "io/example.h"

namespace tessera::detail {
namespace {

using io_test::message_of;
using io_test::read_bytes;
using io_test::TemporaryFolder;
using io_test::write_bytes;

std::string problem_of(const std::string& json, uint64_t data_bytes) {
  return message_of(
      [&] { parse_safetensors_header("file", json, data_bytes); });
}

std::string file_of(const std::string& json, const std::string& data) {
  std::string length;
  for (int i = 0; i < 8; ++i) {
    length.push_back(static_cast<char>(json.size() >> (8 * i) & 255));
  }
  return length + json + data;
}

TEST(SafetensorsHeaderTest, ReadsTensorsInAnyOrderAndSpacesAtTheEnd) {
  const SafetensorsHeader header = parse_safetensors_header(
      "file",
      R"({"b":{"dtype":"I8","shape":[2],"data_offsets":[4,6]},)"
      R"("__metadata__":{"format":"pt"},)"
      R"("a":{"shape":[],"extra":[{}],"data_offsets":[0,4],"dtype":"F32"},)"
      R"("e":{"dtype":"F64","shape":[0,9],"data_offsets":[6,6]}}     )",
      6);
  ASSERT_EQ(header.tensors.size(), 3u);
  EXPECT_EQ(header.tensors[0].name, "a");
  EXPECT_EQ(header.tensors[1].begin, 4u);
  EXPECT_EQ(header.tensors[2].shape, (std::vector<int64_t>{0, 9}));
  EXPECT_EQ(header.metadata.at("format"), "pt");
}

TEST(SafetensorsHeaderTest, RefusesWhatTheReferenceRefuses) {
  const auto tensor = [](const std::string& fields) {
    return "{\"a\":{" + fields + "}}";
  };
  const std::vector<std::array<std::string, 2>> cases = {
      {"[]", "begins without {"},
      {" {}", "begins without {"},
      {"{", "its header is wrong"},
      {"{}x", "its header is wrong"},
      {R"({"__metadata__":{"a":1}})", "its header is wrong"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
       R"("a":{"dtype":"U8","shape":[0],"data_offsets":[4,4]}})",
       "two equal keys"},
      {tensor(R"("shape":[4],"data_offsets":[0,4])"), "the dtype ''"},
      {tensor(R"("dtype":"F31","shape":[4],"data_offsets":[0,4])"), "'F31'"},
      {tensor(R"("dtype":"U8","data_offsets":[0,4])"), "needs a dtype"},
      {tensor(R"("dtype":"U8","shape":[4])"), "needs a dtype"},
      {tensor(R"("dtype":"U8","shape":[4],"data_offsets":[0])"), "needs a"},
      {tensor(R"("dtype":"U8","shape":[4],"data_offsets":[4,0])"), "needs a"},
      {tensor(R"("dtype":"U8","shape":[4],"data_offsets":[-4,0])"), "needs a"},
      {tensor(R"("dtype":"U8","shape":[3],"data_offsets":[0,4])"),
       "expected 3 bytes from 0"},
      {tensor(R"("dtype":"U8","shape":[3],"data_offsets":[1,4])"),
       "without a gap"},
      {tensor(R"("dtype":"U8","shape":[3],"data_offsets":[0,3])"),
       "has 4 bytes behind its header; its tensors need 3"},
      {tensor(R"("dtype":"U8","shape":[5],"data_offsets":[0,5])"),
       "its tensors need 5"},
      {tensor(R"("dtype":"U8","shape":[-4],"data_offsets":[0,4])"),
       "no tensor has the shape"},
      {tensor(
           R"("dtype":"F64","shape":[4611686018427387904,4],"data_offsets":[0,4])"),
       "no tensor has the shape"},
      {tensor(R"("dtype":"F4","shape":[7],"data_offsets":[0,4])"), "in pairs"},
      {R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
       R"("b":{"dtype":"U8","shape":[3],"data_offsets":[1,4]}})",
       "without a gap"},
  };
  for (const auto& [json, expected] : cases) {
    const std::string found = problem_of(json, 4);
    EXPECT_NE(found.find(expected), std::string::npos) << json << ": " << found;
  }
}

TEST(SafetensorsHeaderTest, PacksTwoNumbersOfFourBits) {
  const SafetensorsHeader header = parse_safetensors_header(
      "file", R"({"a":{"dtype":"F4","shape":[2,8],"data_offsets":[0,8]}})", 8);
  EXPECT_EQ(header.tensors[0].shape, (std::vector<int64_t>{2, 4}));
}

TEST(SafetensorsHeaderTest, WritesLargeElementsFirstAndAligned) {
  SafetensorsHeader header;
  header.tensors = {
      {"c", io::Dtype::kUInt8, {3}, 0, 0},
      {"b", io::Dtype::kFloat64, {1}, 0, 0},
      {"a", io::Dtype::kFloat16, {5}, 0, 0},
      {"d", io::Dtype::kFloat64, {}, 0, 0}};
  header.metadata = {{"format", "pt"}};
  const std::string text = print_safetensors_header("file", header);
  EXPECT_EQ(text.size() % 8, 0u);
  const SafetensorsHeader back =
      parse_safetensors_header("file", text.substr(8), 29);
  std::string order;
  for (const SafetensorsTensor& tensor : back.tensors) {
    order += tensor.name;
    EXPECT_EQ(
        (back.data_offset + tensor.begin) %
            static_cast<uint64_t>(element_bytes(tensor.dtype)),
        0u);
  }
  EXPECT_EQ(order, "bdac");
}

TEST(SafetensorsReaderTest, TheLengthOfTheHeaderIsBounded) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.safetensors";
  for (const auto& [bytes, expected] :
       std::vector<std::pair<std::string, std::string>>{
           {"", "it has 0 bytes"},
           {"1234567", "it has 7 bytes"},
           {std::string(8, '\xff'), "18446744073709551615 bytes"},
           {std::string("\x09\0\0\0\0\0\0\0{}", 10), "has 9 bytes"},
           {std::string("\0\0\0\0\0\0\0\0", 8), "begins without {"}}) {
    write_bytes(path, bytes);
    const std::string found = message_of([&] { io::open_checkpoint(path); });
    EXPECT_NE(found.find(expected), std::string::npos) << found;
    EXPECT_NE(found.find("a.safetensors"), std::string::npos) << found;
  }
}

TEST(SafetensorsReaderTest, EveryTruncationIsFound) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.safetensors";
  const std::string bytes = file_of(
      R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", "abcd");
  for (size_t size = 0; size < bytes.size(); ++size) {
    write_bytes(path, bytes.substr(0, size));
    EXPECT_THROW(io::open_checkpoint(path), io::Error) << size;
  }
  write_bytes(path, bytes + "x");
  EXPECT_THROW(io::open_checkpoint(path), io::Error);
  write_bytes(path, bytes);
  EXPECT_EQ(io::open_checkpoint(path)->entries().size(), 1u);
}

std::string tensor_file(const std::string& name, const std::string& data) {
  return file_of(
      "{\"" + name + "\":{\"dtype\":\"U8\",\"shape\":[" +
          std::to_string(data.size()) + "],\"data_offsets\":[0," +
          std::to_string(data.size()) + "]}}",
      data);
}

TEST(SafetensorsIndexTest, NamesTheFilesThatAreRead) {
  const TemporaryFolder folder;
  write_bytes(folder / "one.safetensors", tensor_file("a", "aa"));
  write_bytes(folder / "two.safetensors", tensor_file("b", "bbb"));
  write_bytes(folder / "three.safetensors", tensor_file("a", "other"));
  const auto index = [&](const std::string& map) {
    write_bytes(
        folder / "model.safetensors.index.json",
        "{\"metadata\":{\"total_size\":5.0,\"x\":[]},\"weight_map\":{" + map +
            "},\"more\":null}\n");
  };
  index(R"("a":"one.safetensors","b":"two.safetensors")");
  const auto reader = io::open_checkpoint(folder.path());
  std::string text(3, '\0');
  reader->read(*reader->find("b"), {{0}, {3}}, {text.data()});
  EXPECT_EQ(text, "bbb");
  EXPECT_EQ(reader->entries().size(), 2u);
  const std::vector<std::array<std::string, 2>> cases = {
      {R"("a":"two.safetensors","b":"two.safetensors")", "where it is not"},
      {R"("c":"one.safetensors")", "where it is not"},
      {R"("a":"none.safetensors")", "No such file"},
      {R"("a":"../one.safetensors")", "has a '/'"},
      {R"("a":"/one.safetensors")", "has a '/'"},
      {R"("a":1)", "is wrong"},
  };
  for (const auto& [map, expected] : cases) {
    index(map);
    const std::string found =
        message_of([&] { io::open_checkpoint(folder.path()); });
    EXPECT_NE(found.find(expected), std::string::npos) << map << found;
  }
  write_bytes(folder / "model.safetensors.index.json", "{}");
  EXPECT_NE(
      message_of([&] {
        io::open_checkpoint(folder.path());
      }).find("has no weight_map"),
      std::string::npos);
  std::filesystem::remove(folder / "model.safetensors.index.json");
  EXPECT_NE(
      message_of([&] {
        io::open_checkpoint(folder.path());
      }).find("'a': its 2 chunks do not cover"),
      std::string::npos);
}

TEST(SafetensorsIndexTest, IsWrittenWhereTensorsAreInOnePiece) {
  const TemporaryFolder folder;
  io::Save save(
      folder / "model", {.format = io::Format::kSafetensors, .ranks = 3});
  std::vector<std::string> records;
  for (int64_t rank = 0; rank < 3; ++rank) {
    io::RankContents contents;
    const std::string name(1, static_cast<char>('a' + rank));
    if (rank == 2) {
      contents.values.push_back({"step", {}, io::Value::integer(3)});
    } else {
      contents.chunks.push_back(
          {name, {"m", name}, io::Dtype::kUInt8, {2}, {{0}, {2}}});
    }
    const auto writer = io::open_rank_writer(save.ticket(), rank, contents);
    if (rank < 2) {
      writer->append(0, (name + name).data(), 2);
    }
    records.push_back(writer->finish());
  }
  save.commit(records);
  EXPECT_EQ(
      read_bytes(folder / "model/model.safetensors.index.json"),
      "{\"metadata\":{\"total_size\":4,\"TESSERA_FILES\":"
      "[\"model-00003-of-00003.safetensors\"]},\"weight_map\":{"
      "\"a\":\"model-00001-of-00003.safetensors\","
      "\"b\":\"model-00002-of-00003.safetensors\"}}\n");
  const auto reader = io::open_checkpoint(folder / "model");
  EXPECT_EQ(reader->find("a")->path, (io::Path{"m", "a"}));
  EXPECT_EQ(reader->read_value(*reader->find("step")).as_integer(), 3);
}

TEST(ShardedSafetensorsTest, AMissingShardOfOursIsFound) {
  const TemporaryFolder folder;
  io_test::save_example(folder / "step", io::Format::kSafetensors, 1);
  std::filesystem::remove(
      folder / "step/shard-00003-model-00001-of-00001.safetensors");
  EXPECT_NE(
      message_of([&] {
        io::open_checkpoint(folder / "step");
      }).find("'rows': its 3 chunks do not cover its shape [10, 3]"),
      std::string::npos);
}

TEST(ShardedSafetensorsTest, OffsetsThatMakeNoSenseAreRefused) {
  const TemporaryFolder folder;
  const std::vector<std::array<std::string, 2>> cases = {
      {R"({})", "no offsets for the 1 dims"},
      {R"({\"a\":{}})", "expected saved_offsets"},
      {R"({\"a\":{\"saved_offsets\":[]}})", "no offsets for the 1 dims"},
      {R"({\"a\":{\"saved_offsets\":[-1]}})", "is no part"},
      {R"({\"a\":{\"saved_offsets\":[9223372036854775807]}})", "is no part"},
      {R"({\"a\":{\"saved_offsets\":[1]}})", "do not cover"},
      {R"([])", "is wrong"},
  };
  for (const auto& [info, expected] : cases) {
    write_bytes(
        folder / "a.safetensors",
        file_of(
            "{\"__metadata__\":{\"DCP_SHARDING_INFO\":\"" + info +
                "\"},\"a\":{\"dtype\":\"U8\",\"shape\":[2],"
                "\"data_offsets\":[0,2]}}",
            "ab"));
    const std::string found =
        message_of([&] { io::open_checkpoint(folder.path()); });
    EXPECT_NE(found.find(expected), std::string::npos) << info << found;
  }
}

}  // namespace
}  // namespace tessera::detail
