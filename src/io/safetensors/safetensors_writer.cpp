#include <io/safetensors/safetensors_writer.h>

#include <algorithm>
#include <map>

#include <base/escape.h>
#include <io/files/buffered_file.h>
#include <io/files/error.h>
#include <io/model/check_entry.h>
#include <io/model/limits.h>
#include <io/safetensors/extra_metadata.h>
#include <io/safetensors/header.h>
#include <io/safetensors/index_file.h>

namespace tessera::detail::inline io_layer {

namespace {

std::string five_digits(size_t number) {
  std::string digits = std::to_string(number);
  digits.insert(0, digits.size() < 5 ? 5 - digits.size() : 0, '0');
  return digits;
}

bool is_part(const io::TensorChunk& chunk) {
  return chunk.box != io::box_of(chunk.shape);
}

// One file of a rank, while it is written.
struct OpenFile {
  std::string name;
  std::vector<size_t> chunks;
  SafetensorsHeader header;
  uint64_t bytes = 0;
  std::unique_ptr<BufferedFile> file;
};

class SafetensorsWriter : public io::RankWriter {
 public:
  SafetensorsWriter(
      const Folder& folder, io::SaveTicket ticket, int64_t rank,
      io::RankContents contents)
      : RankWriter(std::move(ticket), rank, std::move(contents)) {
    assign_files();
    for (size_t i = 0; i < files_.size(); ++i) {
      begin_file(folder, i);
    }
  }

 private:
  struct Place {
    size_t file = 0;
    uint64_t offset = 0;
  };

  // The k-th part of one tensor goes to file k.
  void assign_files() {
    std::map<std::string_view, size_t> parts;
    const std::vector<io::TensorChunk>& chunks = contents().chunks;
    places_.resize(chunks.size());
    files_.resize(rank() == 0 || !contents().values.empty() ? 1 : 0);
    for (size_t i = 0; i < chunks.size(); ++i) {
      places_[i].file = parts[chunks[i].name]++;
      files_.resize(std::max(files_.size(), places_[i].file + 1));
      files_[places_[i].file].chunks.push_back(i);
    }
  }

  void begin_file(const Folder& folder, size_t number) {
    OpenFile& file = files_[number];
    file.name = "rank_" + five_digits(static_cast<size_t>(rank())) + "." +
                std::to_string(number) + ".safetensors";
    for (const size_t i : file.chunks) {
      const io::TensorChunk& chunk = contents().chunks[i];
      if (chunk.name == kMetadataKey) {
        io::throw_unsupported(
            ticket().path, "no tensor of safetensors is called '" + chunk.name +
                               "': rename it, or save in "
                               "another format");
      }
      file.header.tensors.push_back(
          {chunk.name, chunk.dtype, chunk.box.sizes, 0, 0});
    }
    file.header.metadata = metadata_of(file, number == 0);
    const std::string text =
        print_safetensors_header(folder.path_of(file.name), file.header);
    file.bytes = file.header.data_offset;
    std::map<std::string_view, uint64_t> offsets;
    for (const SafetensorsTensor& tensor : file.header.tensors) {
      offsets[tensor.name] = file.header.data_offset + tensor.begin;
      file.bytes = file.header.data_offset + tensor.end;
    }
    for (const size_t i : file.chunks) {
      places_[i].offset = offsets[contents().chunks[i].name];
    }
    file.file = std::make_unique<BufferedFile>(folder.create_file(file.name));
    file.file->write(text.data(), text.size(), 0);
  }

  std::map<std::string, std::string> metadata_of(
      const OpenFile& file, bool is_first) const {
    std::map<std::string, std::string> metadata{{"format", "pt"}};
    ShardOffsets offsets;
    ExtraState state;
    bool has_parts = false;
    for (const size_t i : file.chunks) {
      const io::TensorChunk& chunk = contents().chunks[i];
      std::vector<int64_t>& saved = offsets[chunk.name];
      saved = chunk.box.offsets;
      if (!saved.empty()) {
        saved.back() *= packed_elements(chunk.dtype);
      }
      if (is_part(chunk)) {
        has_parts = true;
        state.shapes[chunk.name] = chunk.shape;
      }
      if (!chunk.path.empty() && chunk.path != io::Path{chunk.name}) {
        state.paths[chunk.name] = chunk.path;
      }
    }
    if (has_parts) {
      metadata["DCP_VERSION"] = "1.0";
      metadata[kShardingInfoKey] = print_shard_offsets(offsets);
    }
    if (is_first) {
      state.values = value_entries();
    }
    if (has_parts || !state.paths.empty() || !state.values.empty()) {
      metadata[kStateKey] = print_extra_state(state);
    }
    return metadata;
  }

  std::vector<io::Entry> value_entries() const {
    std::vector<io::Entry> entries;
    for (const io::NamedValue& value : contents().values) {
      entries.push_back(entry_of(value));
      entries.back().value = std::make_shared<io::Value>(value.value);
    }
    return entries;
  }

  void append_bytes(
      size_t chunk, uint64_t done, const void* bytes, size_t size) override {
    const Place& place = places_[chunk];
    files_[place.file].file->write(bytes, size, place.offset + done);
  }

  io::Contents finish_files() override {
    io::Contents written;
    for (OpenFile& file : files_) {
      file.file->finish();
      written.files.push_back({file.name, file.bytes});
    }
    for (size_t i = 0; i < contents().chunks.size(); ++i) {
      const io::TensorChunk& chunk = contents().chunks[i];
      io::Entry entry = entry_of(chunk);
      io::StoredBytes stored;
      stored.file = places_[i].file;
      stored.offset = places_[i].offset;
      stored.bytes = chunk_bytes(i);
      entry.chunks.push_back({chunk.box, stored});
      written.entries.push_back(std::move(entry));
    }
    for (io::Entry& entry : value_entries()) {
      written.entries.push_back(std::move(entry));
    }
    return written;
  }

  std::vector<Place> places_;  // of chunks
  std::vector<OpenFile> files_;
};

bool has_parts(const io::Contents& contents) {
  const auto is_in_parts = [](const io::Entry& entry) {
    return entry.is_tensor() &&
           (entry.chunks.size() != 1 ||
            entry.chunks[0].box != io::box_of(entry.shape));
  };
  return std::any_of(
      contents.entries.begin(), contents.entries.end(), is_in_parts);
}

void write_index(
    const Folder& folder, const io::Contents& contents,
    const std::vector<std::string>& names) {
  SafetensorsIndex index;
  std::vector<bool> has_tensors(names.size(), false);
  for (const io::Entry& entry : contents.entries) {
    for (const io::Chunk& chunk : entry.chunks) {
      index.weight_map[entry.name] = names[chunk.stored.file];
      index.total_size += chunk.stored.bytes;
      has_tensors[chunk.stored.file] = true;
    }
  }
  for (size_t i = 0; i < names.size(); ++i) {
    if (!has_tensors[i]) {
      index.other_files.push_back(names[i]);
    }
  }
  const std::string text = print_index(index);
  check_index_bytes(
      folder.path_of(kIndexName), text.size(), kMostSafetensorsIndexBytes);
  File file = folder.create_file(kIndexName);
  file.write(text.data(), text.size(), 0);
  file.sync();
  file.close();
}

}  // namespace

std::unique_ptr<io::RankWriter> write_safetensors(
    const Folder& folder, io::SaveTicket ticket, int64_t rank,
    io::RankContents contents) {
  return std::make_unique<SafetensorsWriter>(
      folder, std::move(ticket), rank, std::move(contents));
}

std::string finish_safetensors(
    const Folder& folder, const io::SaveTicket& ticket,
    const io::Contents& contents) {
  const size_t count = contents.files.size();
  const bool in_parts = has_parts(contents);
  if (ticket.is_one_file) {
    if (count != 1 || in_parts) {
      io::throw_usage(
          ticket.path,
          "one safetensors file holds tensors that one rank has "
          "as a whole; save to a folder");
    }
    return contents.files[0].name;
  }
  std::vector<std::string> names;
  for (size_t i = 0; i < count; ++i) {
    const std::string number = five_digits(i + 1);
    names.push_back(
        in_parts ? "shard-" + number + "-model-00001-of-00001.safetensors"
        : count == 1
            ? "model.safetensors"
            : "model-" + number + "-of-" + five_digits(count) + ".safetensors");
    folder.rename(contents.files[i].name, names.back());
  }
  if (count > 1 && !in_parts) {
    write_index(folder, contents, names);
  }
  return "";
}

}  // namespace tessera::detail::inline io_layer
