#include <io/dcp/dcp_reader.h>

#include <base/escape.h>
#include <io/checksum/crc32.h>
#include <io/commit/checkpoint_names.h>
#include <io/dcp/item.h>
#include <io/dcp/metadata.h>
#include <io/files/error.h>
#include <io/files/file_cache.h>
#include <io/model/check_entry.h>
#include <io/model/limits.h>

namespace tessera::detail::inline io_layer {

namespace {

constexpr uint64_t kWindowBytes = uint64_t{1} << 20;

// The storage of a tensor. Its CRC32 speaks for all of it, so that of each
// window is kept, in whatever order they are read, and put together at the end;
// a window that is read again must be what it was.
class DcpPayload : public Payload {
 public:
  DcpPayload(ByteSource source, TensorItem item)
      : Payload(item.storage.bytes, kWindowBytes),
        source_(std::move(source)),
        storage_(item.storage),
        crcs_(window_count()),
        is_read_(window_count(), false) {
    first_element = item.first_element;
    strides = std::move(item.strides);
  }

  void read_window(uint64_t index, void* out) override {
    const size_t size = window_size(index);
    source_.read(out, size, storage_.offset + index * window());
    const uint32_t crc = crc32(out, size);
    if (is_read_[index] && crcs_[index] != crc) {
      fail("changes while it is read");
    }
    crcs_[index] = crc;
    is_read_[index] = true;
  }

  void finish() override {
    std::vector<char> bytes;
    uint32_t crc = 0;
    for (uint64_t i = 0; i < window_count(); ++i) {
      if (!is_read_[i]) {
        bytes.resize(window_size(i));
        read_window(i, bytes.data());
      }
      crc = combine_crc32(crc, crcs_[i], window_size(i));
    }
    if (crc != storage_.crc) {
      fail(
          "is damaged: its CRC32 is " + std::to_string(crc) + ", not " +
          std::to_string(storage_.crc));
    }
  }

 private:
  [[noreturn]] void fail(const std::string& problem) const {
    io::throw_corrupt(
        source_.path(), "record '" + base::escape(storage_.name) +
                            "' of the item at byte " +
                            std::to_string(source_.offset()) + " " + problem);
  }

  ByteSource source_;
  ZipRecord storage_;
  std::vector<uint32_t> crcs_;
  std::vector<bool> is_read_;
};

class DcpReader : public io::Reader {
 public:
  DcpReader(Folder folder, io::Contents contents)
      : Reader(io::Format::kDcp, folder.path(), std::move(contents)),
        files_(std::move(folder)) {}

 private:
  ByteSource open_item(const io::StoredBytes& stored) const {
    return ByteSource(
        files_.open(files()[stored.file].name), stored.offset, stored.bytes);
  }

  std::unique_ptr<Payload> open_payload(
      const io::Entry& tensor, size_t chunk) const override {
    const io::Chunk& found = tensor.chunks[chunk];
    ByteSource source = open_item(found.stored);
    TensorItem item = read_tensor_item(StoredZip(source));
    const std::string path = source.path();
    const bool agrees =
        item.dtype == tensor.dtype && item.sizes == found.box.sizes;
    auto payload =
        std::make_unique<DcpPayload>(std::move(source), std::move(item));
    if (!agrees ||
        !fits_payload(
            *payload, found.box.sizes, element_bytes(*tensor.dtype))) {
      io::throw_corrupt(
          path, "the item at byte " + std::to_string(found.stored.offset) +
                    " is not chunk " + std::to_string(chunk) + " of '" +
                    base::escape(tensor.name) + "', " +
                    std::string(info_of(*tensor.dtype).name) +
                    io::print(found.box.sizes));
    }
    return payload;
  }

  io::Value load_value(const io::Entry& entry) const override {
    const ByteSource source = open_item(*entry.stored_value);
    return read_value_item(StoredZip(source));
  }

  FileCache files_;
};

}  // namespace

std::unique_ptr<io::Reader> open_dcp(Folder folder) {
  const File file = folder.open_file(std::string(kDcpMetadataName));
  io::Contents contents =
      parse_dcp_metadata(file.path(), file.read_all(kMostDcpMetadataBytes));
  for (io::StoredFile& data : contents.files) {
    data.bytes = folder.open_file(data.name).size();
  }
  check_contents(folder.path(), contents);
  return std::make_unique<DcpReader>(std::move(folder), std::move(contents));
}

}  // namespace tessera::detail::inline io_layer
