// Reading one tensor in parts, in memory that does not grow with it.
//
//   io::TensorReader parts(*reader, *reader->find("model.w"));
//   io::for_each_part(io::box_of(shape), dtype, 1 << 20, [&](const Box& part) {
//     parts.read(part, {bytes});  // at most 1 MiB
//   });
//   parts.finish();               // now all of it is verified
//
// A checksum of DCP speaks for a whole chunk: Reader::read() reads all of one
// for each part of it. Here chunks stay open, so that they are read once, and
// what was read counts only when finish() has come back.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>

#include <io/model/reader.h>

namespace tessera::io {

class TensorReader {
 public:
  /// Throws Error (kUsage) for an entry that is no tensor. Both must outlive
  /// it.
  TensorReader(const Reader& reader, const Entry& tensor);

  /// Reads the elements of a box, from as many chunks as hold some of it.
  void read(const Box& box, const Target& target);
  /// Verifies all chunks that something was read from.
  void finish();

 private:
  static constexpr size_t kMostOpen = 256;

  detail::Payload& open(size_t chunk);
  void close_first();

  const Reader& reader_;
  const Entry& tensor_;
  std::map<size_t, std::unique_ptr<detail::Payload>> open_;
  std::deque<size_t> order_;  // of opening
};

/// Calls `use` with boxes that make up `box`, in row-major order, each of at
/// most `bytes` bytes (one element at least) and contiguous in it.
void for_each_part(
    const Box& box, Dtype dtype, int64_t bytes,
    const std::function<void(const Box&)>& use);

}  // namespace tessera::io
