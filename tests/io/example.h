// A small checkpoint that 4 ranks save, for tests: each element has a value of
// its own, and each generation others.
#pragma once

#include <stdlib.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <io/files/error.h>
#include <io/open_checkpoint.h>
#include <io/save.h>

namespace tessera::io_test {

/// A folder that is removed with its contents.
class TemporaryFolder {
 public:
  // In memory where there is such a file system: a disk takes its time to sync.
  TemporaryFolder() {
    for (std::string name :
         {std::string("/dev/shm/tessera_io_XXXXXX"),
          (std::filesystem::temp_directory_path() / "tessera_io_XXXXXX")
              .string()}) {
      if (path_.empty() && ::mkdtemp(name.data()) != nullptr) {
        path_ = name;
      }
    }
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const {
    return path_ + "/" + name;
  }

 private:
  std::string path_;
};

inline std::string read_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

inline std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

/// Returns what the io::Error says that a call throws; "no error" for none.
inline std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const io::Error& error) {
    return error.what();
  }
  return "no error";
}

/// Tells whether tests run in their long forms.
inline bool is_long() {
  const char* value = std::getenv("TESSERA_LONG");
  return value != nullptr && *value != '\0' && *value != '0';
}

/// Bytes of elements first, first + 1, ... as int32, made different by `seed`.
inline std::string make_bytes(int64_t first, int64_t count, int seed) {
  std::string bytes;
  for (int64_t i = first; i < first + count; ++i) {
    const auto value = static_cast<int32_t>(i * 7 + seed * 1000003);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  return bytes;
}

/// What one of 4 ranks saves: rows of "rows" (10 x 3: 3 3 3 1), all of "solo"
/// on the last rank, an empty tensor on rank 1, and values on rank 0.
inline io::RankContents example_contents(int64_t rank, int seed) {
  io::RankContents contents;
  const int64_t begin = std::min<int64_t>(3 * rank, 10);
  const int64_t rows = std::min<int64_t>(3, 10 - begin);
  contents.chunks.push_back(
      {"rows", {}, io::Dtype::kInt32, {10, 3}, {{begin, 0}, {rows, 3}}});
  if (rank == 1) {
    contents.chunks.push_back(
        {"empty", {}, io::Dtype::kInt32, {0, 2}, {{0, 0}, {0, 2}}});
  }
  if (rank == 3) {
    contents.chunks.push_back(
        {"model.solo", {"model", "solo"}, io::Dtype::kInt32, {5}, {{0}, {5}}});
  }
  if (rank == 0) {
    contents.values.push_back({"seed", {}, io::Value::integer(seed)});
    contents.values.push_back(
        {"text",
         {"a", "text"},
         io::Value::string("step " + std::to_string(seed))});
    contents.values.push_back(
        {"large", {}, io::Value::bytes(make_bytes(0, 2000, seed))});
  }
  return contents;
}

/// Writes the part of one rank, and returns its records.
inline std::string write_example_rank(
    const std::string& ticket, int64_t rank, int seed,
    io::FileSystem& files = io::system_files()) {
  const io::RankContents contents = example_contents(rank, seed);
  const auto writer = io::open_rank_writer(ticket, rank, contents, files);
  for (size_t i = 0; i < contents.chunks.size(); ++i) {
    const io::TensorChunk& chunk = contents.chunks[i];
    const int64_t columns = chunk.shape.size() == 2 ? chunk.shape[1] : 1;
    const std::string bytes = make_bytes(
        chunk.box.offsets[0] * columns, *io::element_count(chunk.box.sizes),
        seed);
    writer->append(i, bytes.data(), bytes.size());
  }
  return writer->finish();
}

inline void save_example(
    const std::string& path, io::Format format, int seed,
    bool overwrite = false, io::FileSystem& files = io::system_files()) {
  io::Save save(
      path,
      {.format = format, .ranks = 4, .overwrite = overwrite, .files = &files});
  std::vector<std::string> records;
  for (int64_t rank = 0; rank < 4; ++rank) {
    records.push_back(write_example_rank(save.ticket(), rank, seed, files));
  }
  save.commit(records);
}

/// Reads everything; throws where it is not the example of one generation, and
/// returns which.
inline int read_example(
    const std::string& path, io::FileSystem& files = io::system_files()) {
  const auto reader = io::open_checkpoint(path, {.files = &files});
  reader->verify();
  const auto value = [&](const char* name) {
    return reader->read_value(*reader->find(name));
  };
  const auto seed = static_cast<int>(value("seed").as_integer());
  const auto require = [&](bool is_right, const char* what) {
    if (!is_right) {
      throw std::logic_error(std::string("a mix of generations: ") + what);
    }
  };
  const auto tensor = [&](const char* name) {
    const io::Entry& entry = *reader->find(name);
    std::string bytes(
        static_cast<size_t>(*io::byte_count(entry.shape, *entry.dtype)), '\0');
    reader->read(entry, io::box_of(entry.shape), {bytes.data()});
    return bytes;
  };
  require(value("text").as_string() == "step " + std::to_string(seed), "text");
  require(value("large").as_bytes() == make_bytes(0, 2000, seed), "large");
  require(tensor("rows") == make_bytes(0, 30, seed), "rows");
  require(tensor("model.solo") == make_bytes(0, 5, seed), "solo");
  require(tensor("empty").empty(), "empty");
  require(reader->entries().size() == 6, "entries");
  return seed;
}

}  // namespace tessera::io_test
