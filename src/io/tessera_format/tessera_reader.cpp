#include <io/tessera_format/tessera_reader.h>

#include <algorithm>

#include <base/escape.h>
#include <base/json.h>
#include <io/checksum/xxh3.h>
#include <io/files/error.h>
#include <io/files/file_cache.h>
#include <io/model/limits.h>
#include <io/model/value_json.h>
#include <io/tessera_format/manifest.h>

namespace tessera::detail::inline io_layer {

namespace {

class TesseraPayload : public Payload {
 public:
  TesseraPayload(
      std::shared_ptr<const File> file, const io::StoredBytes& stored,
      std::string name)
      : Payload(stored.bytes, stored.window),
        file_(std::move(file)),
        stored_(stored),
        name_(std::move(name)) {}

  void read_window(uint64_t index, void* out) override {
    const uint64_t offset = stored_.offset + index * window();
    const size_t size = window_size(index);
    file_->read(out, size, offset);
    const uint64_t found = xxh3(out, size);
    if (found != stored_.xxh3[index]) {
      io::throw_corrupt(
          file_->path(),
          "bytes " + std::to_string(offset) + " to " +
              std::to_string(offset + size) + ", of '" + base::escape(name_) +
              "', are damaged: their checksum is " + print_hex64(found) +
              ", not " + print_hex64(stored_.xxh3[index]));
    }
  }

 private:
  std::shared_ptr<const File> file_;
  const io::StoredBytes& stored_;
  std::string name_;
};

class TesseraReader : public io::Reader {
 public:
  TesseraReader(Folder folder, io::Contents contents)
      : Reader(io::Format::kTessera, folder.path(), std::move(contents)),
        files_(std::move(folder)) {
    for (const io::StoredFile& file : files()) {
      check_size(file);
    }
  }

 private:
  void check_size(const io::StoredFile& file) const {
    const auto opened = files_.open(file.name);
    if (const uint64_t bytes = opened->size(); bytes != file.bytes) {
      io::throw_corrupt(
          opened->path(), "has " + std::to_string(bytes) +
                              " bytes; the manifest says " +
                              std::to_string(file.bytes));
    }
  }

  std::unique_ptr<Payload> open_stored(
      const io::StoredBytes& stored, const std::string& name) const {
    return std::make_unique<TesseraPayload>(
        files_.open(files()[stored.file].name), stored, name);
  }

  std::unique_ptr<Payload> open_payload(
      const io::Entry& tensor, size_t chunk) const override {
    auto payload = open_stored(tensor.chunks[chunk].stored, tensor.name);
    payload->strides = row_major_strides(tensor.chunks[chunk].box.sizes);
    return payload;
  }

  io::Value load_value(const io::Entry& entry) const override {
    const auto payload = open_stored(*entry.stored_value, entry.name);
    std::string text(payload->bytes(), '\0');
    for (uint64_t i = 0; i < payload->window_count(); ++i) {
      payload->read_window(i, text.data() + i * payload->window());
    }
    try {
      base::JsonReader in(text, 4 * kMostValueDepth);
      io::Value value = detail::read_value(in);
      in.finish();
      return value;
    } catch (const base::JsonError& error) {
      io::throw_corrupt(
          path(),
          "the value '" + base::escape(entry.name) + "': " + error.what());
    }
  }

  // Zeros lie between payloads, and nothing else; no other data files lie
  // beside those of the manifest.
  void verify_files() const override;
  void verify_names() const;
  void verify_gap(size_t file, uint64_t begin, uint64_t end) const;

  FileCache files_;
};

void TesseraReader::verify_names() const {
  for (const std::string& name : files_.folder().list()) {
    const bool is_named = std::any_of(
        files().begin(), files().end(),
        [&](const io::StoredFile& file) { return file.name == name; });
    if (is_tessera_data_name(name) && !is_named) {
      io::throw_corrupt(
          files_.folder().path_of(name),
          "is not named by the manifest: it belongs to another checkpoint; "
          "move it away");
    }
  }
}

void TesseraReader::verify_files() const {
  verify_names();
  std::vector<std::vector<std::pair<uint64_t, uint64_t>>> used(files().size());
  const auto add = [&](const io::StoredBytes& stored) {
    used[stored.file].emplace_back(stored.offset, stored.offset + stored.bytes);
  };
  for (const io::Entry& entry : entries()) {
    for (const io::Chunk& chunk : entry.chunks) {
      add(chunk.stored);
    }
    if (entry.stored_value) {
      add(*entry.stored_value);
    }
  }
  for (size_t i = 0; i < used.size(); ++i) {
    used[i].emplace_back(files()[i].bytes, files()[i].bytes);
    std::sort(used[i].begin(), used[i].end());
    uint64_t end = 0;
    for (const auto& [begin, next_end] : used[i]) {
      verify_gap(i, std::min(end, begin), begin);
      end = std::max(end, next_end);
    }
  }
}

void TesseraReader::verify_gap(
    size_t file, uint64_t begin, uint64_t end) const {
  const auto opened = files_.open(files()[file].name);
  char bytes[4096];
  while (begin < end) {
    const auto size =
        static_cast<size_t>(std::min<uint64_t>(sizeof(bytes), end - begin));
    opened->read(bytes, size, begin);
    if (std::any_of(bytes, bytes + size, [](char c) { return c != 0; })) {
      io::throw_corrupt(
          opened->path(), "bytes " + std::to_string(begin) + " to " +
                              std::to_string(begin + size) +
                              ", which lie between payloads, are not zero");
    }
    begin += size;
  }
}

}  // namespace

std::unique_ptr<io::Reader> open_tessera(Folder folder) {
  const std::string name(kManifestName);
  const File file = folder.open_file(name);
  Manifest manifest =
      parse_manifest(file.path(), file.read_all(kMostManifestBytes));
  return std::make_unique<TesseraReader>(
      std::move(folder), std::move(manifest.contents));
}

}  // namespace tessera::detail::inline io_layer
