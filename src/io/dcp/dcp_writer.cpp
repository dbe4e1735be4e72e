#include <io/dcp/dcp_writer.h>

#include <algorithm>

#include <io/checksum/crc32.h>
#include <io/commit/checkpoint_names.h>
#include <io/dcp/item.h>
#include <io/dcp/metadata.h>
#include <io/files/buffered_file.h>
#include <io/model/check_entry.h>
#include <io/model/limits.h>

namespace tessera::detail::inline io_layer {

namespace {

// Items begin at multiples of this, so that payloads do too.
constexpr uint64_t kItemAlignment = 64;

struct Item {
  ZipLayout zip;
  io::StoredBytes stored;
  uint32_t crc = 0;
};

class DcpWriter : public io::RankWriter {
 public:
  DcpWriter(
      const Folder& folder, io::SaveTicket ticket, int64_t rank,
      io::RankContents contents)
      : RankWriter(std::move(ticket), rank, std::move(contents)),
        name_("__" + std::to_string(rank) + "_0" + std::string(kDcpSuffix)),
        file_(folder.create_file(name_)) {
    for (const io::TensorChunk& chunk : this->contents().chunks) {
      add_item(make_tensor_item(chunk.dtype, chunk.box.sizes));
    }
    for (const io::NamedValue& value : this->contents().values) {
      add_item(make_value_item(value.value));
    }
  }

 private:
  void add_item(ZipLayout zip) {
    Item item{std::move(zip), {}, 0};
    item.stored.offset =
        (end_ + kItemAlignment - 1) / kItemAlignment * kItemAlignment;
    item.stored.bytes = item.zip.before().size() + item.zip.payload_bytes() +
                        item.zip.after(0).size();
    end_ = item.stored.offset + item.stored.bytes;
    items_.push_back(std::move(item));
  }

  void write_before(const Item& item) {
    const std::string& text = item.zip.before();
    file_.write(text.data(), text.size(), item.stored.offset);
  }
  void write_after(const Item& item) {
    const std::string text = item.zip.after(item.crc);
    file_.write(
        text.data(), text.size(),
        item.stored.offset + item.stored.bytes - text.size());
  }

  void append_bytes(
      size_t chunk, uint64_t done, const void* bytes, size_t size) override {
    Item& item = items_[chunk];
    if (size == 0) {
      return;
    }
    if (done == 0) {
      write_before(item);
    }
    file_.write(
        bytes, size, item.stored.offset + item.zip.before().size() + done);
    item.crc = crc32(bytes, size, item.crc);
    if (done + size == item.zip.payload_bytes()) {
      write_after(item);
    }
  }

  io::Contents finish_files() override {
    const size_t chunks = contents().chunks.size();
    for (size_t i = 0; i < items_.size(); ++i) {
      if (i >= chunks || chunk_bytes(i) == 0) {
        write_before(items_[i]);
        write_after(items_[i]);
      }
    }
    file_.finish();
    io::Contents written;
    written.files.push_back({name_, end_});
    for (size_t i = 0; i < items_.size(); ++i) {
      const bool is_chunk = i < chunks;
      io::Entry entry = is_chunk ? entry_of(contents().chunks[i])
                                 : entry_of(contents().values[i - chunks]);
      if (is_chunk) {
        entry.chunks.push_back({contents().chunks[i].box, items_[i].stored});
      } else {
        entry.stored_value = items_[i].stored;
      }
      written.entries.push_back(std::move(entry));
    }
    return written;
  }

  std::string name_;
  BufferedFile file_;
  std::vector<Item> items_;  // of chunks, then of values
  uint64_t end_ = 0;
};

// PyTorch finds an item by the offsets of its chunk, so a chunk without
// elements could take the place of one that has some and begins there. It is
// left out, but for the first one of a tensor that has no elements at all.
io::Contents without_empty_chunks(io::Contents contents) {
  for (io::Entry& entry : contents.entries) {
    if (io::element_count(entry.shape) == 0) {
      entry.chunks.resize(std::min<size_t>(entry.chunks.size(), 1));
      continue;
    }
    std::erase_if(entry.chunks, [](const io::Chunk& chunk) {
      return io::element_count(chunk.box.sizes) == 0;
    });
  }
  return contents;
}

}  // namespace

std::unique_ptr<io::RankWriter> write_dcp(
    const Folder& folder, io::SaveTicket ticket, int64_t rank,
    io::RankContents contents) {
  return std::make_unique<DcpWriter>(
      folder, std::move(ticket), rank, std::move(contents));
}

void write_dcp_metadata(const Folder& folder, io::Contents contents) {
  const std::string text =
      print_dcp_metadata(without_empty_chunks(std::move(contents)));
  const std::string name(kDcpMetadataName);
  check_index_bytes(folder.path_of(name), text.size(), kMostDcpMetadataBytes);
  File file = folder.create_file(name);
  file.write(text.data(), text.size(), 0);
  file.sync();
  file.close();
}

}  // namespace tessera::detail::inline io_layer
