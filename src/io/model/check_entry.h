// Rules that every checkpoint keeps, whatever its format: names, shapes, chunks
// that lie inside their tensor and cover it, each element once.
#pragma once

#include <string>
#include <vector>

#include <io/model/entry.h>

namespace tessera::detail::inline io_layer {

/// Throws unless `shape` is one that a tensor of `dtype` can have. `path` is
/// the file, `name` the tensor, that messages name.
void check_shape(
    const std::string& path, const std::string& name, io::Dtype dtype,
    const std::vector<int64_t>& shape);
/// Throws unless a box lies in the shape.
void check_box(
    const std::string& path, const std::string& name, const io::Box& box,
    const std::vector<int64_t>& shape);
/// Throws unless the chunks of a tensor cover it, each element once.
void check_cover(const std::string& path, const io::Entry& tensor);
/// Throws (kCorrupt) unless a name can be the name of an entry.
void check_entry_name(const std::string& path, const std::string& name);
/// Throws (kUsage) for a name or a path that no reader would take.
void check_name_to_save(
    const std::string& path, const std::string& name, const io::Path& parts);

/// Throws (kUnsupported) where there are more entries, chunks or files than a
/// reader takes.
void check_counts(const std::string& path, const io::Contents& contents);
/// The same of the bytes of an index, as a manifest.
void check_index_bytes(
    const std::string& path, uint64_t bytes, uint64_t most_bytes);

/// Throws unless all entries keep the rules above, no two have one name, and
/// stored bytes lie inside their files.
void check_contents(const std::string& path, const io::Contents& contents);

}  // namespace tessera::detail::inline io_layer
