#include <io/model/writer.h>

#include <base/escape.h>
#include <io/files/error.h>
#include <io/model/check_entry.h>
#include <io/model/records.h>

namespace tessera::io {

RankWriter::RankWriter(SaveTicket ticket, int64_t rank, RankContents contents)
    : ticket_(std::move(ticket)), rank_(rank), contents_(std::move(contents)) {
  if (rank < 0 || rank >= ticket_.ranks) {
    throw_usage(
        ticket_.path, "rank " + std::to_string(rank) + " of a save by " +
                          std::to_string(ticket_.ranks) + " ranks");
  }
  for (const TensorChunk& chunk : contents_.chunks) {
    detail::check_name_to_save(ticket_.path, chunk.name, chunk.path);
    detail::check_shape(ticket_.path, chunk.name, chunk.dtype, chunk.shape);
    detail::check_box(ticket_.path, chunk.name, chunk.box, chunk.shape);
    bytes_.push_back(
        static_cast<uint64_t>(*byte_count(chunk.box.sizes, chunk.dtype)));
  }
  for (const NamedValue& value : contents_.values) {
    detail::check_name_to_save(ticket_.path, value.name, value.path);
  }
  done_.resize(bytes_.size(), 0);
}

void RankWriter::append(size_t chunk, const void* bytes, size_t size) {
  const bool is_known = chunk < bytes_.size();
  if (!is_known || size > bytes_[chunk] - done_[chunk]) {
    throw_usage(
        ticket_.path,
        "rank " + std::to_string(rank_) + " writes " + std::to_string(size) +
            " bytes to chunk " + std::to_string(chunk) +
            (is_known ? " ('" + base::escape(contents_.chunks[chunk].name) +
                            "'), which has " + std::to_string(bytes_[chunk]) +
                            ", " + std::to_string(done_[chunk]) + " written"
                      : ", which it has not declared"));
  }
  append_bytes(chunk, done_[chunk], bytes, size);
  done_[chunk] += size;
}

std::string RankWriter::finish() {
  for (size_t i = 0; i < bytes_.size(); ++i) {
    if (done_[i] != bytes_[i]) {
      throw_usage(
          ticket_.path, "rank " + std::to_string(rank_) + " has written " +
                            std::to_string(done_[i]) + " of " +
                            std::to_string(bytes_[i]) + " bytes of '" +
                            base::escape(contents_.chunks[i].name) + "'");
    }
  }
  if (is_finished_) {
    throw_usage(ticket_.path, "a writer finishes once");
  }
  is_finished_ = true;
  return detail::encode_records({ticket_.token, rank_, finish_files()});
}

}  // namespace tessera::io

namespace tessera::detail::inline io_layer {

io::Entry entry_of(const io::TensorChunk& chunk) {
  io::Entry entry;
  entry.name = chunk.name;
  entry.path = chunk.path.empty() ? io::Path{chunk.name} : chunk.path;
  entry.dtype = chunk.dtype;
  entry.shape = chunk.shape;
  return entry;
}

io::Entry entry_of(const io::NamedValue& value) {
  io::Entry entry;
  entry.name = value.name;
  entry.path = value.path.empty() ? io::Path{value.name} : value.path;
  return entry;
}

}  // namespace tessera::detail::inline io_layer
