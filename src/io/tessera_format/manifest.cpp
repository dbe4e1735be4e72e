#include <io/tessera_format/manifest.h>

#include <algorithm>
#include <tuple>
#include <unordered_set>
#include <vector>

#include <base/escape.h>
#include <base/json.h>
#include <io/checksum/xxh3.h>
#include <io/files/error.h>
#include <io/files/folder.h>
#include <io/model/check_entry.h>
#include <io/model/entry_json.h>
#include <io/model/limits.h>

namespace tessera::detail::inline io_layer {

namespace {

using io::throw_corrupt;

constexpr std::string_view kFormatName = "tessera-checkpoint";
constexpr std::string_view kLineEnd = "\n";
constexpr size_t kDepth = 256;
// {"xxh3":"0123456789abcdef"} and its end.
constexpr size_t kLastLine = 28;

struct Header {
  std::string writer;
  uint64_t files = 0;
  uint64_t entries = 0;
};

// Lines of a text, each with its '\n'.
class LineReader {
 public:
  LineReader(const std::string& path, std::string_view text)
      : path_(path), rest_(text) {}

  std::string_view next() {
    const size_t end = rest_.find('\n');
    ++line_;
    if (end == rest_.npos) {
      fail("ends early; a line with the checksum is its last");
    }
    const std::string_view line = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    return line;
  }
  std::string_view rest() const { return rest_; }
  // How many lines can be left at most: no line is shorter than two bytes.
  size_t most_lines() const { return rest_.size() / 2; }

  [[noreturn]] void fail(const std::string& problem) const {
    io::throw_corrupt(path_, "line " + std::to_string(line_) + " " + problem);
  }

 private:
  const std::string& path_;
  std::string_view rest_;
  size_t line_ = 0;
};

// Calls `read` on the JSON of the next line.
template <typename Read>
auto read_line(LineReader& lines, const Read& read) {
  base::JsonReader in(lines.next(), kDepth);
  try {
    auto result = read(in);
    in.finish();
    return result;
  } catch (const base::JsonError& error) {
    lines.fail(std::string("is wrong: ") + error.what());
  }
}

Header read_header(base::JsonReader& in, const std::string& path) {
  in.begin_object();
  expect_key(in, "format");
  if (const std::string name = in.read_string(); name != kFormatName) {
    in.fail("the format is '" + base::escape(name) + "'");
  }
  expect_key(in, "version");
  const int64_t version = in.read_integer();
  if (version != kManifestVersion) {
    io::throw_unsupported(
        path, "is version " + std::to_string(version) +
                  " of the format; this library reads version 1: use the "
                  "library that wrote it, or a later one");
  }
  Header header;
  expect_key(in, "writer");
  header.writer = in.read_string();
  expect_key(in, "files");
  header.files = in.read_unsigned();
  expect_key(in, "entries");
  header.entries = in.read_unsigned();
  expect_end(in);
  return header;
}

// The checksum comes first: no other rule says so plainly that a file was
// damaged.
void check_sum(const std::string& path, std::string_view text) {
  uint64_t expected = 0;
  if (text.size() < kLastLine || !text.ends_with("\"}\n") ||
      !text.substr(text.size() - kLastLine).starts_with("{\"xxh3\":\"") ||
      !parse_hex64(text.substr(text.size() - 19, 16), &expected)) {
    throw_corrupt(
        path,
        "does not end in a line with its checksum: it was cut off, or "
        "is no manifest");
  }
  const uint64_t found = xxh3(text.substr(0, text.size() - kLastLine));
  if (found != expected) {
    throw_corrupt(
        path, "is damaged: its checksum is " + print_hex64(found) + ", not " +
                  print_hex64(expected));
  }
}

void check_files(
    const std::string& path, const std::vector<io::StoredFile>& files) {
  std::unordered_set<std::string_view> names;
  for (const io::StoredFile& file : files) {
    const std::string problem = plain_name_problem(file.name);
    if (!problem.empty() || !names.insert(file.name).second) {
      throw_corrupt(
          path, "the file name '" + base::escape(file.name) + "' " +
                    (problem.empty() ? "stands twice" : problem));
    }
  }
}

struct ByteRange {
  size_t file;
  uint64_t begin;
  uint64_t end;
  bool operator<(const ByteRange& other) const {
    return std::tie(file, begin, end) <
           std::tie(other.file, other.begin, other.end);
  }
};

void add_range(
    const std::string& path, const io::Entry& entry, uint64_t bytes,
    const io::StoredBytes& stored, std::vector<ByteRange>& ranges) {
  if (stored.bytes != bytes || stored.offset % kPayloadAlignment != 0 ||
      stored.window != window_of(bytes)) {
    throw_corrupt(
        path, "'" + base::escape(entry.name) + "' has " +
                  std::to_string(stored.bytes) + " bytes at byte " +
                  std::to_string(stored.offset) + " in windows of " +
                  std::to_string(stored.window) + "; expected " +
                  std::to_string(bytes) + " bytes at a multiple of 64");
  }
  if (bytes > 0) {
    ranges.push_back({stored.file, stored.offset, stored.offset + bytes});
  }
}

// Sizes agree with shapes, and no two payloads share a byte.
void check_payloads(const std::string& path, const io::Contents& contents) {
  std::vector<ByteRange> ranges;
  for (const io::Entry& entry : contents.entries) {
    for (const io::Chunk& chunk : entry.chunks) {
      const auto bytes =
          static_cast<uint64_t>(*io::byte_count(chunk.box.sizes, *entry.dtype));
      add_range(path, entry, bytes, chunk.stored, ranges);
    }
    if (entry.stored_value) {
      add_range(
          path, entry, entry.stored_value->bytes, *entry.stored_value, ranges);
    }
  }
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].file == ranges[i - 1].file &&
        ranges[i].begin < ranges[i - 1].end) {
      throw_corrupt(
          path, "two entries share byte " + std::to_string(ranges[i].begin) +
                    " of " + base::escape(contents.files[ranges[i].file].name));
    }
  }
}

io::Contents read_contents(
    const std::string& path, LineReader& lines, const Header& header) {
  if (header.files > kMostFiles || header.entries > kMostEntries ||
      header.files + header.entries > lines.most_lines()) {
    lines.fail(
        "announces " + std::to_string(header.files) + " files and " +
        std::to_string(header.entries) + " entries, more than can follow");
  }
  io::Contents contents;
  for (uint64_t i = 0; i < header.files; ++i) {
    contents.files.push_back(read_line(lines, &read_file));
  }
  for (uint64_t i = 0; i < header.entries; ++i) {
    contents.entries.push_back(read_line(lines, &read_entry));
  }
  if (lines.next().size() + 1 != kLastLine) {
    lines.fail("is not the checksum alone");
  }
  if (!lines.rest().empty()) {
    lines.fail("is followed by more text");
  }
  check_files(path, contents.files);
  check_contents(path, contents);
  check_payloads(path, contents);
  return contents;
}

// Calls a function with each line but that of the checksum, without its '\n'.
template <typename Use>
void for_each_line(const Manifest& manifest, const Use& use) {
  const io::Contents& contents = manifest.contents;
  base::JsonWriter out;
  const auto give = [&] {
    use(out.text());
    out.clear();
  };
  out.begin_object().key("format").string(kFormatName);
  out.key("version").integer(kManifestVersion);
  out.key("writer").string(manifest.writer);
  out.key("files").unsigned_integer(contents.files.size());
  out.key("entries").unsigned_integer(contents.entries.size()).end_object();
  give();
  for (const io::StoredFile& file : contents.files) {
    write_file(out, file);
    give();
  }
  for (const io::Entry& entry : contents.entries) {
    write_entry(out, entry);
    give();
  }
}

// Compares line by line, which needs no second text in memory.
void check_form(
    const std::string& path, const Manifest& manifest, std::string_view text) {
  LineReader lines(path, text);
  for_each_line(manifest, [&](const std::string& line) {
    if (lines.next() != line) {
      lines.fail(
          "is not written as this format writes it: spaces, escapes or "
          "numbers have another form");
    }
  });
}

}  // namespace

uint64_t window_of(uint64_t bytes) {
  uint64_t window = uint64_t{1} << 20;
  while (window < bytes / 1024) {
    window *= 2;
  }
  return window;
}

void print_manifest(
    const Manifest& manifest,
    const std::function<void(std::string_view)>& write) {
  Xxh3 sum;
  for_each_line(manifest, [&](const std::string& line) {
    for (const std::string_view part : {std::string_view(line), kLineEnd}) {
      sum.update(part.data(), part.size());
      write(part);
    }
  });
  write("{\"xxh3\":\"" + print_hex64(sum.value()) + "\"}\n");
}

std::string print_manifest(const Manifest& manifest) {
  std::string text;
  print_manifest(manifest, [&](std::string_view part) { text += part; });
  return text;
}

Manifest parse_manifest(const std::string& path, std::string_view text) {
  check_sum(path, text);
  LineReader lines(path, text);
  const Header header = read_line(
      lines, [&](base::JsonReader& in) { return read_header(in, path); });
  Manifest manifest{header.writer, read_contents(path, lines, header)};
  check_form(path, manifest, text);
  return manifest;
}

}  // namespace tessera::detail::inline io_layer
