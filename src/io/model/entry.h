// A checkpoint as data: named tensors in chunks that lie somewhere in files,
// and named values. All formats are read into this and written from it.
//
//   tensor "w", float32, shape 4 x 6
//     chunk  offsets 0 0, sizes 2 x 6:  file 0, bytes 0 .. 47
//     chunk  offsets 2 0, sizes 2 x 6:  file 1, bytes 64 .. 111
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <io/model/dtype.h>
#include <io/model/value.h>

namespace tessera::io {

/// A step on the way into nested dicts and lists: a key or a position.
using PathPart = std::variant<std::string, int64_t>;
using Path = std::vector<PathPart>;

/// A part of a tensor: offsets[d] .. offsets[d] + sizes[d] - 1 in each dim.
struct Box {
  std::vector<int64_t> offsets;
  std::vector<int64_t> sizes;
  bool operator==(const Box&) const = default;
};

struct StoredFile {
  std::string name;  // plain, inside the checkpoint's folder
  uint64_t bytes = 0;
  bool operator==(const StoredFile&) const = default;
};

/// Where bytes lie, and the checksums of their windows: window i is
/// bytes i * window .. (i + 1) * window - 1, the last one maybe shorter.
struct StoredBytes {
  size_t file = 0;  // of Contents::files
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t window = 0;  // 0: no checksums
  std::vector<uint64_t> xxh3;
  /// How many windows there are.
  uint64_t window_count() const {
    return window == 0 || bytes == 0 ? 0 : (bytes - 1) / window + 1;
  }
  bool operator==(const StoredBytes&) const = default;
};

struct Chunk {
  Box box;
  /// The elements in row-major order; in DCP, the item that holds them and says
  /// their strides.
  StoredBytes stored;
  bool operator==(const Chunk&) const = default;
};

struct Entry {
  std::string name;
  /// The name's parts, where it lies in nested dicts; else the name alone.
  Path path;
  /// Tensors only.
  std::optional<Dtype> dtype;
  std::vector<int64_t> shape;
  std::vector<Chunk> chunks;
  /// Values only: the value, or where it is stored.
  std::shared_ptr<const Value> value;
  std::optional<StoredBytes> stored_value;

  bool is_tensor() const { return dtype.has_value(); }
};

struct Contents {
  std::vector<StoredFile> files;
  std::vector<Entry> entries;
};

/// Returns the number of elements; nothing where 63 bits do not hold it.
std::optional<int64_t> element_count(const std::vector<int64_t>& sizes);
/// Returns the bytes of so many elements, likewise.
std::optional<int64_t> byte_count(
    const std::vector<int64_t>& sizes, Dtype dtype);
/// Returns the box that is all of a tensor.
Box box_of(const std::vector<int64_t>& shape);
/// Returns what two boxes share; nothing where that has no elements. Boxes of
/// no dims share their element.
std::optional<Box> intersect(const Box& a, const Box& b);
/// Returns "[2, 3]".
std::string print(const std::vector<int64_t>& list);
/// Returns "offsets [2, 0], sizes [2, 6]".
std::string print(const Box& box);

}  // namespace tessera::io
