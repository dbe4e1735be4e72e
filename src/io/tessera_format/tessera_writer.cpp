#include <io/tessera_format/tessera_writer.h>

#include <algorithm>
#include <optional>

#include <base/json.h>
#include <io/checksum/xxh3.h>
#include <io/files/buffered_file.h>
#include <io/model/check_entry.h>
#include <io/model/limits.h>
#include <io/model/value_json.h>
#include <io/tessera_format/manifest.h>

namespace tessera::detail::inline io_layer {

namespace {

// Larger values lie beside the tensors.
constexpr size_t kMostInlineBytes = 4096;
// What a core's cache holds between the checksum and the write.
constexpr size_t kPortionBytes = size_t{1} << 20;

uint64_t align(uint64_t offset) {
  return (offset + kPayloadAlignment - 1) / kPayloadAlignment *
         kPayloadAlignment;
}

// Makes the checksums of windows from bytes that come in portions.
class WindowHasher {
 public:
  void update(io::StoredBytes& stored, const char* bytes, size_t size) {
    while (size > 0) {
      const auto part = static_cast<size_t>(
          std::min<uint64_t>(size, stored.window - in_window_));
      hash_.update(bytes, part);
      in_window_ += part;
      done_ += part;
      bytes += part;
      size -= part;
      if (in_window_ == stored.window || done_ == stored.bytes) {
        stored.xxh3.push_back(hash_.value());
        hash_.reset();
        in_window_ = 0;
      }
    }
  }

 private:
  Xxh3 hash_;
  uint64_t in_window_ = 0;
  uint64_t done_ = 0;
};

std::string file_name(int64_t rank) {
  std::string digits = std::to_string(rank);
  digits.insert(0, digits.size() < 5 ? 5 - digits.size() : 0, '0');
  return "rank_" + digits + ".0.bin";
}

class TesseraWriter : public io::RankWriter {
 public:
  TesseraWriter(
      const Folder& folder, io::SaveTicket ticket, int64_t rank,
      io::RankContents contents)
      : RankWriter(std::move(ticket), rank, std::move(contents)) {
    for (size_t i = 0; i < this->contents().chunks.size(); ++i) {
      io::Entry entry = entry_of(this->contents().chunks[i]);
      if (chunk_bytes(i) > 0) {  // what has no elements lies nowhere
        entry.chunks.push_back(
            {this->contents().chunks[i].box, reserve(chunk_bytes(i))});
      }
      entries_.push_back(std::move(entry));
    }
    hashers_.resize(entries_.size());
    add_values();
    if (end_ > 0) {
      file_.emplace(folder.create_file(file_name(rank)));
      write_values();
    }
  }

 private:
  io::StoredBytes reserve(uint64_t bytes) {
    io::StoredBytes stored;
    stored.offset = align(end_);
    stored.bytes = bytes;
    stored.window = window_of(bytes);
    end_ = stored.offset + bytes;
    return stored;
  }

  void add_values() {
    for (const io::NamedValue& value : contents().values) {
      io::Entry entry = entry_of(value);
      base::JsonWriter out;
      write_value(out, value.value);
      std::string text = out.take();
      if (text.size() <= kMostInlineBytes) {
        entry.value = std::make_shared<io::Value>(value.value);
      } else {
        entry.stored_value = reserve(text.size());
        large_values_.emplace_back(entries_.size(), std::move(text));
      }
      entries_.push_back(std::move(entry));
    }
  }

  void write_values() {
    for (const auto& [entry, text] : large_values_) {
      io::StoredBytes& stored = *entries_[entry].stored_value;
      file_->write(text.data(), text.size(), stored.offset);
      WindowHasher().update(stored, text.data(), text.size());
    }
  }

  void append_bytes(
      size_t chunk, uint64_t done, const void* bytes, size_t size) override {
    const auto* next = static_cast<const char*>(bytes);
    while (size > 0) {
      io::StoredBytes& stored = entries_[chunk].chunks[0].stored;
      const size_t part = std::min(size, kPortionBytes);
      hashers_[chunk].update(stored, next, part);
      file_->write(next, part, stored.offset + done);
      next += part;
      done += part;
      size -= part;
    }
  }

  io::Contents finish_files() override {
    io::Contents written;
    if (file_) {
      file_->finish();
      written.files.push_back({file_name(rank()), end_});
    }
    written.entries = std::move(entries_);
    return written;
  }

  std::vector<io::Entry> entries_;  // of chunks, then of values
  std::vector<WindowHasher> hashers_;
  std::vector<std::pair<size_t, std::string>> large_values_;
  std::optional<BufferedFile> file_;
  uint64_t end_ = 0;
};

}  // namespace

std::unique_ptr<io::RankWriter> write_tessera(
    const Folder& folder, io::SaveTicket ticket, int64_t rank,
    io::RankContents contents) {
  return std::make_unique<TesseraWriter>(
      folder, std::move(ticket), rank, std::move(contents));
}

void write_tessera_manifest(const Folder& folder, io::Contents contents) {
  BufferedFile file(folder.create_file(std::string(kManifestName)));
  uint64_t end = 0;
  print_manifest(
      {"tessera " TESSERA_VERSION, std::move(contents)},
      [&](std::string_view part) {
        file.write(part.data(), part.size(), end);
        end += part.size();
        check_index_bytes(file.path(), end, kMostManifestBytes);
      });
  file.finish();
}

}  // namespace tessera::detail::inline io_layer
