// The bytes of one chunk, in windows: the unit that is read from the disk, and
// that a checksum speaks for. Elements are copied out of windows that have been
// checked, so that what is used is what was verified.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <io/model/entry.h>

namespace tessera::io {

/// Where elements go: `strides` are counted in elements, one for each dim; none
/// at all mean row-major order of the box that is read.
struct Target {
  void* data = nullptr;
  std::vector<int64_t> strides = {};
};

}  // namespace tessera::io

namespace tessera::detail::inline io_layer {

/// Returns the row-major strides of a shape, in elements.
std::vector<int64_t> row_major_strides(const std::vector<int64_t>& sizes);

class Payload {
 public:
  Payload(uint64_t bytes, uint64_t window) : bytes_(bytes), window_(window) {}
  Payload(const Payload&) = delete;
  Payload& operator=(const Payload&) = delete;
  virtual ~Payload() = default;

  uint64_t bytes() const { return bytes_; }
  uint64_t window() const { return window_; }
  uint64_t window_count() const { return (bytes_ + window_ - 1) / window_; }
  /// The last window may be shorter.
  size_t window_size(uint64_t index) const;

  /// Reads one window, and throws where its checksum disagrees.
  virtual void read_window(uint64_t index, void* out) = 0;
  /// Reads just these bytes, if no checksum wants more to be read; returns
  /// false and does nothing where windows have one.
  virtual bool read_unchecked(uint64_t offset, void* out, size_t size) {
    (void)offset, (void)out, (void)size;
    return false;
  }
  /// Checks what can be checked only when all windows were read, and reads for
  /// it those that were not.
  virtual void finish() {}

  /// Where element [0, 0, ..] of the chunk lies, and the strides, in elements.
  uint64_t first_element = 0;
  std::vector<int64_t> strides;

 private:
  uint64_t bytes_;
  uint64_t window_;
};

/// Copies the elements of `part`, which lies in the chunk's box, to `target`;
/// finish() of the payload is the caller's.
void copy_part(
    Payload& payload, const io::Box& chunk, const io::Box& part,
    int64_t element_bytes, const io::Target& target);

/// Tells whether all elements of a chunk of `sizes` lie inside the payload;
/// negative strides do not.
bool fits_payload(
    const Payload& payload, const std::vector<int64_t>& sizes,
    int64_t element_bytes);

/// Reads all windows for their checksums.
void verify_payload(Payload& payload);

/// What a chunk has of a box: the part of the tensor, and its place in the
/// memory that the box is read into.
struct Overlap {
  size_t chunk;
  io::Box part;
  io::Target target;
};

/// Returns the overlaps of a box with the chunks of a tensor, in the order of
/// the chunks; none of them is empty. Throws where the entry is no tensor or
/// the box does not lie in it; `path` is what the error names. Example: of a
/// tensor of 4 rows in chunks of 2, the box of rows 1 and 2 overlaps both, with
/// a row each.
std::vector<Overlap> overlaps_of(
    const std::string& path, const io::Entry& tensor, const io::Box& box,
    const io::Target& target);

}  // namespace tessera::detail::inline io_layer
