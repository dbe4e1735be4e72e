// What one rank writes of a checkpoint: it declares its chunks and values,
// gives the bytes of each chunk in order, and gets records: bytes that the rank
// which commits needs (save.h).
//
//   auto writer = io::open_rank_writer(ticket, rank, {chunks, values});
//   writer->append(0, bytes, size);       // all of chunk 0, in one or more
//   parts std::string records = writer->finish();   // its files are on the
//   disk
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <io/model/entry.h>
#include <io/model/ticket.h>

namespace tessera::io {

/// A part of a tensor that a rank holds, to be written row-major.
struct TensorChunk {
  std::string name;
  Path path;  // none: the name alone
  Dtype dtype = Dtype::kFloat32;
  std::vector<int64_t> shape;  // of all of the tensor
  Box box;
};

struct NamedValue {
  std::string name;
  Path path;
  Value value;
};

struct RankContents {
  std::vector<TensorChunk> chunks;
  std::vector<NamedValue> values;
};

class RankWriter {
 public:
  RankWriter(const RankWriter&) = delete;
  RankWriter& operator=(const RankWriter&) = delete;
  virtual ~RankWriter() = default;

  /// Writes the next bytes of a chunk.
  void append(size_t chunk, const void* bytes, size_t size);
  /// Returns the records once all files of this rank are on the disk. Throws
  /// where a chunk did not get all of its bytes.
  std::string finish();

 protected:
  /// Checks what was declared.
  RankWriter(SaveTicket ticket, int64_t rank, RankContents contents);

  const SaveTicket& ticket() const { return ticket_; }
  int64_t rank() const { return rank_; }
  const RankContents& contents() const { return contents_; }
  uint64_t chunk_bytes(size_t chunk) const { return bytes_[chunk]; }

 private:
  /// Writes bytes of a chunk that `done` bytes came before.
  virtual void append_bytes(
      size_t chunk, uint64_t done, const void* bytes, size_t size) = 0;
  /// Finishes the files, and says what they hold.
  virtual Contents finish_files() = 0;

  SaveTicket ticket_;
  int64_t rank_;
  RankContents contents_;
  std::vector<uint64_t> bytes_;
  std::vector<uint64_t> done_;
  bool is_finished_ = false;
};

}  // namespace tessera::io

namespace tessera::detail::inline io_layer {

/// Returns the entry of a chunk, without chunks.
io::Entry entry_of(const io::TensorChunk& chunk);
io::Entry entry_of(const io::NamedValue& value);

}  // namespace tessera::detail::inline io_layer
