#include <io/safetensors/safetensors_reader.h>

#include <algorithm>
#include <set>
#include <unordered_map>

#include <base/escape.h>
#include <io/commit/checkpoint_names.h>
#include <io/files/error.h>
#include <io/files/file_cache.h>
#include <io/model/check_entry.h>
#include <io/model/limits.h>
#include <io/safetensors/extra_metadata.h>
#include <io/safetensors/header.h>
#include <io/safetensors/index_file.h>

namespace tessera::detail::inline io_layer {

namespace {

// Without checksums windows need not agree with anything.
constexpr uint64_t kWindowBytes = uint64_t{256} << 10;

class SafetensorsPayload : public Payload {
 public:
  SafetensorsPayload(
      std::shared_ptr<const File> file, const io::StoredBytes& stored)
      : Payload(stored.bytes, kWindowBytes),
        file_(std::move(file)),
        offset_(stored.offset) {}

  void read_window(uint64_t index, void* out) override {
    file_->read(out, window_size(index), offset_ + index * window());
  }

  bool read_unchecked(uint64_t offset, void* out, size_t size) override {
    file_->read(out, size, offset_ + offset);
    return true;
  }

 private:
  std::shared_ptr<const File> file_;
  uint64_t offset_;
};

class SafetensorsReader : public io::Reader {
 public:
  SafetensorsReader(std::string path, Folder folder, io::Contents contents)
      : Reader(io::Format::kSafetensors, std::move(path), std::move(contents)),
        files_(std::move(folder)) {}

 private:
  std::unique_ptr<Payload> open_payload(
      const io::Entry& tensor, size_t chunk) const override {
    const io::Chunk& found = tensor.chunks[chunk];
    auto payload = std::make_unique<SafetensorsPayload>(
        files_.open(files()[found.stored.file].name), found.stored);
    payload->strides = row_major_strides(found.box.sizes);
    return payload;
  }

  io::Value load_value(const io::Entry& entry) const override {
    return *entry.value;  // all values are in headers
  }

  FileCache files_;
};

// Puts the tensors of files together.
class Collector {
 public:
  explicit Collector(const Folder& folder) : folder_(folder) {}

  void add_file(const std::string& name) {
    const File file = folder_.open_file(name);
    SafetensorsHeader header = read_safetensors_header(file);
    const size_t number = contents_.files.size();
    contents_.files.push_back({name, file.size()});
    std::optional<ShardOffsets> places;
    if (const auto found = header.metadata.find(kShardingInfoKey);
        found != header.metadata.end()) {
      places = parse_shard_offsets(file.path(), found->second);
    }
    for (SafetensorsTensor& tensor : header.tensors) {
      tensor.begin += header.data_offset;
      tensor.end += header.data_offset;
      add_tensor(file.path(), number, tensor, places);
    }
    if (const auto found = header.metadata.find(kStateKey);
        found != header.metadata.end()) {
      states_.push_back(parse_extra_state(file.path(), found->second));
    }
  }

  io::Contents take() {
    for (ExtraState& state : states_) {
      apply(state);
    }
    return std::move(contents_);
  }

 private:
  static std::vector<int64_t> offsets_of(
      const std::string& path, const SafetensorsTensor& tensor,
      const std::optional<ShardOffsets>& places) {
    if (!places) {
      return std::vector<int64_t>(tensor.shape.size(), 0);
    }
    const auto found = places->find(tensor.name);
    if (found == places->end() || found->second.size() != tensor.shape.size()) {
      io::throw_corrupt(
          path, "DCP_SHARDING_INFO has no offsets for the " +
                    std::to_string(tensor.shape.size()) + " dims of tensor '" +
                    base::escape(tensor.name) + "'");
    }
    std::vector<int64_t> offsets = found->second;
    if (!offsets.empty()) {
      offsets.back() /= packed_elements(tensor.dtype);
    }
    return offsets;
  }

  void add_tensor(
      const std::string& path, size_t file, const SafetensorsTensor& tensor,
      const std::optional<ShardOffsets>& places) {
    io::Box box{offsets_of(path, tensor, places), tensor.shape};
    std::vector<int64_t> reach;
    for (size_t d = 0; d < box.sizes.size(); ++d) {
      int64_t end = 0;
      if (box.offsets[d] < 0 ||
          __builtin_add_overflow(box.offsets[d], box.sizes[d], &end)) {
        check_box(path, tensor.name, box, tensor.shape);  // throws
      }
      reach.push_back(end);
    }
    io::StoredBytes stored;
    stored.file = file;
    stored.offset = tensor.begin;
    stored.bytes = tensor.end - tensor.begin;
    add_chunk(path, tensor, reach, {std::move(box), stored});
  }

  void add_chunk(
      const std::string& path, const SafetensorsTensor& tensor,
      const std::vector<int64_t>& reach, io::Chunk chunk) {
    const auto [found, is_new] =
        by_name_.emplace(tensor.name, contents_.entries.size());
    if (is_new) {
      io::Entry entry;
      entry.name = tensor.name;
      entry.path = {tensor.name};
      entry.dtype = tensor.dtype;
      entry.shape.resize(reach.size(), 0);
      contents_.entries.push_back(std::move(entry));
    }
    io::Entry& entry = contents_.entries[found->second];
    if (entry.dtype != tensor.dtype || entry.shape.size() != reach.size()) {
      io::throw_corrupt(
          path,
          "tensor '" + base::escape(tensor.name) + "' is " +
              std::string(info_of(tensor.dtype).name) +
              io::print(tensor.shape) + "; file " +
              base::escape(contents_.files[entry.chunks[0].stored.file].name) +
              " has another dtype or number of dims");
    }
    for (size_t d = 0; d < reach.size(); ++d) {
      entry.shape[d] = std::max(entry.shape[d], reach[d]);
    }
    entry.chunks.push_back(std::move(chunk));
  }

  void apply(ExtraState& state) {
    for (auto& [name, shape] : state.shapes) {
      if (const auto found = by_name_.find(name); found != by_name_.end()) {
        contents_.entries[found->second].shape = shape;
      }
    }
    for (auto& [name, path] : state.paths) {
      if (const auto found = by_name_.find(name); found != by_name_.end()) {
        contents_.entries[found->second].path = path;
      }
    }
    for (io::Entry& value : state.values) {
      contents_.entries.push_back(std::move(value));
    }
  }

  const Folder& folder_;
  io::Contents contents_;
  std::vector<ExtraState> states_;
  std::unordered_map<std::string, size_t> by_name_;
};

std::vector<std::string> names_ending(
    const Folder& folder, std::string_view suffix) {
  std::vector<std::string> names = folder.list();
  std::erase_if(
      names, [&](const std::string& name) { return !name.ends_with(suffix); });
  return names;
}

// The index of a folder: the only one, or the one of Hugging Face's name.
std::string index_name(const Folder& folder) {
  const std::vector<std::string> names = names_ending(folder, kIndexSuffix);
  if (names.size() <= 1) {
    return names.empty() ? "" : names[0];
  }
  if (std::find(names.begin(), names.end(), kIndexName) == names.end()) {
    io::throw_usage(
        folder.path(), "has several indices, " + base::escape(names[0]) +
                           " and " + base::escape(names[1]) +
                           "; open one of the files that they name");
  }
  return kIndexName;
}

void check_index(
    const Folder& folder, const std::string& index_path,
    const SafetensorsIndex& index, const io::Contents& contents) {
  std::unordered_map<std::string_view, std::string_view> where;
  for (const io::Entry& entry : contents.entries) {
    for (const io::Chunk& chunk : entry.chunks) {
      where[entry.name] = contents.files[chunk.stored.file].name;
    }
  }
  for (const auto& [name, file] : index.weight_map) {
    if (const auto found = where.find(name);
        found == where.end() || found->second != file) {
      io::throw_corrupt(
          index_path, "says that tensor '" + base::escape(name) + "' is in " +
                          folder.path_of(file) + ", where it is not");
    }
  }
}

}  // namespace

std::unique_ptr<io::Reader> open_safetensors_file(
    Folder folder, const std::string& name) {
  Collector collector(folder);
  collector.add_file(name);
  io::Contents contents = collector.take();
  std::string path = folder.path_of(name);
  check_contents(path, contents);
  return std::make_unique<SafetensorsReader>(
      std::move(path), std::move(folder), std::move(contents));
}

std::unique_ptr<io::Reader> open_safetensors_folder(Folder folder) {
  const std::string name = index_name(folder);
  Collector collector(folder);
  io::Contents contents;
  if (name.empty()) {
    for (const std::string& file : names_ending(folder, kSafetensorsSuffix)) {
      collector.add_file(file);
    }
    contents = collector.take();
  } else {
    const File file = folder.open_file(name);
    const SafetensorsIndex index =
        parse_index(file.path(), file.read_all(kMostSafetensorsIndexBytes));
    std::set<std::string> files(
        index.other_files.begin(), index.other_files.end());
    for (const auto& [tensor, in] : index.weight_map) {
      files.insert(in);
    }
    for (const std::string& data : files) {
      collector.add_file(data);
    }
    contents = collector.take();
    check_index(folder, file.path(), index, contents);
  }
  std::string path = folder.path();
  check_contents(path, contents);
  return std::make_unique<SafetensorsReader>(
      std::move(path), std::move(folder), std::move(contents));
}

}  // namespace tessera::detail::inline io_layer
