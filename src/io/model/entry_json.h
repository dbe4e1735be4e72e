// Entries and files as JSON: the lines of a manifest.
//
//   {"name":"w","dtype":"float32","shape":[4,6],"chunks":[{"offsets":[0,0],
//    "sizes":[4,6],"file":0,"at":0,"bytes":96,"window":1048576,
//    "xxh3":["0123456789abcdef"]}]}
//   {"name":"a.step","path":["a","step"],"value":3}
#pragma once

#include <base/json.h>
#include <io/model/entry.h>

namespace tessera::detail::inline io_layer {

void write_entry(base::JsonWriter& out, const io::Entry& entry);
void write_file(base::JsonWriter& out, const io::StoredFile& file);
void write_path(base::JsonWriter& out, const io::Path& path);

/// Read what the functions above write; throw base::JsonError for the rest:
/// also for members that are missing, unknown, or in another order.
io::Entry read_entry(base::JsonReader& in);
io::StoredFile read_file(base::JsonReader& in);
io::Path read_path(base::JsonReader& in);

/// Goes on to a key that must be the next one.
void expect_key(base::JsonReader& in, std::string_view key);
/// Reads the end of an object that has no more members.
void expect_end(base::JsonReader& in);

}  // namespace tessera::detail::inline io_layer
