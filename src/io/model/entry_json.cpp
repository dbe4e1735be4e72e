#include <io/model/entry_json.h>

#include <io/checksum/xxh3.h>
#include <io/model/limits.h>
#include <io/model/value_json.h>

namespace tessera::detail::inline io_layer {

namespace {

void write_stored(base::JsonWriter& out, const io::StoredBytes& stored) {
  out.key("file").unsigned_integer(stored.file);
  out.key("at").unsigned_integer(stored.offset);
  out.key("bytes").unsigned_integer(stored.bytes);
  out.key("window").unsigned_integer(stored.window);
  out.key("xxh3").begin_array();
  for (const uint64_t hash : stored.xxh3) {
    out.string(print_hex64(hash));
  }
  out.end_array();
}

void write_chunk(base::JsonWriter& out, const io::Chunk& chunk) {
  out.begin_object();
  out.key("offsets").integers(chunk.box.offsets);
  out.key("sizes").integers(chunk.box.sizes);
  write_stored(out, chunk.stored);
  out.end_object();
}

io::StoredBytes read_stored(base::JsonReader& in) {
  io::StoredBytes stored;
  expect_key(in, "file");
  stored.file = in.read_unsigned();
  expect_key(in, "at");
  stored.offset = in.read_unsigned();
  expect_key(in, "bytes");
  stored.bytes = in.read_unsigned();
  expect_key(in, "window");
  stored.window = in.read_unsigned();
  expect_key(in, "xxh3");
  in.begin_array();
  while (in.next_element()) {
    uint64_t hash = 0;
    if (!parse_hex64(in.read_string(), &hash)) {
      in.fail("expected 16 hexadecimal digits");
    }
    stored.xxh3.push_back(hash);
  }
  if (stored.xxh3.size() != stored.window_count()) {
    in.fail(
        "expected " + std::to_string(stored.window_count()) +
        " checksums, got " + std::to_string(stored.xxh3.size()));
  }
  return stored;
}

io::Chunk read_chunk(base::JsonReader& in) {
  io::Chunk chunk;
  in.begin_object();
  expect_key(in, "offsets");
  chunk.box.offsets = in.read_integers();
  expect_key(in, "sizes");
  chunk.box.sizes = in.read_integers();
  chunk.stored = read_stored(in);
  expect_end(in);
  return chunk;
}

void read_tensor(base::JsonReader& in, io::Entry& entry) {
  const std::string name = in.read_string();
  entry.dtype = io::find_dtype(name);
  if (!entry.dtype) {
    in.fail("no tensor has the dtype '" + name + "'");
  }
  expect_key(in, "shape");
  entry.shape = in.read_integers();
  expect_key(in, "chunks");
  in.begin_array();
  while (in.next_element()) {
    entry.chunks.push_back(read_chunk(in));
  }
}

}  // namespace

void expect_key(base::JsonReader& in, std::string_view key) {
  if (!in.next_key() || in.key() != key) {
    in.fail("expected the key '" + std::string(key) + "'");
  }
}

void expect_end(base::JsonReader& in) {
  if (in.next_key()) {
    in.fail("unknown key");
  }
}

void write_path(base::JsonWriter& out, const io::Path& path) {
  out.begin_array();
  for (const io::PathPart& part : path) {
    if (const auto* key = std::get_if<std::string>(&part)) {
      out.string(*key);
    } else {
      out.integer(std::get<int64_t>(part));
    }
  }
  out.end_array();
}

io::Path read_path(base::JsonReader& in) {
  io::Path path;
  in.begin_array();
  while (in.next_element()) {
    if (path.size() == kMostPathParts) {
      in.fail("a path of more than 64 parts");
    }
    if (in.peek() == base::JsonKind::kString) {
      path.emplace_back(in.read_string());
    } else {
      path.emplace_back(in.read_integer());
    }
  }
  return path;
}

void write_file(base::JsonWriter& out, const io::StoredFile& file) {
  out.begin_object().key("file").string(file.name);
  out.key("bytes").unsigned_integer(file.bytes).end_object();
}

io::StoredFile read_file(base::JsonReader& in) {
  io::StoredFile file;
  in.begin_object();
  expect_key(in, "file");
  file.name = in.read_string();
  expect_key(in, "bytes");
  file.bytes = in.read_unsigned();
  expect_end(in);
  return file;
}

void write_entry(base::JsonWriter& out, const io::Entry& entry) {
  out.begin_object().key("name").string(entry.name);
  if (entry.path != io::Path{entry.name}) {
    out.key("path");
    write_path(out, entry.path);
  }
  if (entry.is_tensor()) {
    out.key("dtype").string(info_of(*entry.dtype).name);
    out.key("shape").integers(entry.shape);
    out.key("chunks").begin_array();
    for (const io::Chunk& chunk : entry.chunks) {
      write_chunk(out, chunk);
    }
    out.end_array();
  } else if (entry.value != nullptr) {
    out.key("value");
    write_value(out, *entry.value);
  } else {
    out.key("stored").begin_object();
    write_stored(out, *entry.stored_value);
    out.end_object();
  }
  out.end_object();
}

io::Entry read_entry(base::JsonReader& in) {
  io::Entry entry;
  in.begin_object();
  expect_key(in, "name");
  entry.name = in.read_string();
  entry.path = {entry.name};
  if (!in.next_key()) {
    in.fail("an entry with a name only");
  }
  if (in.key() == "path") {
    entry.path = read_path(in);
    if (!in.next_key()) {
      in.fail("an entry without contents");
    }
  }
  if (in.key() == "dtype") {
    read_tensor(in, entry);
  } else if (in.key() == "value") {
    entry.value = std::make_shared<io::Value>(read_value(in));
  } else if (in.key() == "stored") {
    in.begin_object();
    entry.stored_value = read_stored(in);
    expect_end(in);
  } else {
    in.fail("expected 'dtype', 'value' or 'stored'");
  }
  expect_end(in);
  return entry;
}

}  // namespace tessera::detail::inline io_layer
