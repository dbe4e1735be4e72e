#include <io/model/records.h>

#include <unordered_map>

#include <base/escape.h>
#include <base/json.h>
#include <base/packed.h>
#include <io/files/error.h>
#include <io/model/check_entry.h>
#include <io/model/entry_json.h>
#include <io/model/limits.h>
#include <io/model/value_json.h>

namespace tessera::detail::inline io_layer {

namespace {

// Note [Records as bytes]
// One rank puts the records of all together, a chunk of every rank for every
// tensor: of 1,024 tensors on 1,024 ranks a million. So they are no JSON, which
// takes it 2 s, and are not decoded into entries that are merged afterwards:
//   token  rank  files: name, bytes  entries: name, head, chunks
// The head is all that ranks must agree on, packed by itself: where it is the
// same as the first rank's, a chunk is read into its place and nothing else.

enum class EntryKind : uint64_t { kTensor, kValue, kStoredValue };

void pack_stored(base::PackedWriter& out, const io::StoredBytes& stored) {
  out.number(stored.file);
  out.number(stored.offset);
  out.number(stored.bytes);
  out.number(stored.window);
  out.number(stored.xxh3.size());
  for (const uint64_t hash : stored.xxh3) {
    out.number(hash);
  }
}

io::StoredBytes unpack_stored(base::PackedReader& in, size_t first_file) {
  io::StoredBytes stored;
  stored.file = first_file + in.number();
  stored.offset = in.number();
  stored.bytes = in.number();
  stored.window = in.number();
  stored.xxh3.resize(in.count());
  for (uint64_t& hash : stored.xxh3) {
    hash = in.number();
  }
  if (stored.xxh3.size() != stored.window_count()) {
    throw base::PackedError("there are more or fewer checksums than windows");
  }
  return stored;
}

void pack_path(base::PackedWriter& out, const io::Path& path) {
  out.number(path.size());
  for (const io::PathPart& part : path) {
    const auto* key = std::get_if<std::string>(&part);
    out.number(key != nullptr ? 1 : 0);
    if (key != nullptr) {
      out.text(*key);
    } else {
      out.number(static_cast<uint64_t>(std::get<int64_t>(part)));
    }
  }
}

io::Path unpack_path(base::PackedReader& in) {
  io::Path path;
  for (size_t left = in.count(); left > 0; --left) {
    if (in.number() != 0) {
      path.emplace_back(std::string(in.text()));
    } else {
      path.emplace_back(static_cast<int64_t>(in.number()));
    }
  }
  return path;
}

std::string encode_head(const io::Entry& entry) {
  base::PackedWriter out;
  const bool has_path = entry.path != io::Path{entry.name};
  out.number(has_path ? 1 : 0);
  if (has_path) {
    pack_path(out, entry.path);
  }
  if (entry.is_tensor()) {
    out.number(static_cast<uint64_t>(EntryKind::kTensor));
    out.number(static_cast<uint64_t>(*entry.dtype));
    out.numbers(entry.shape);
  } else if (entry.value != nullptr) {
    out.number(static_cast<uint64_t>(EntryKind::kValue));
    base::JsonWriter value;
    write_value(value, *entry.value);
    out.text(value.text());
  } else {
    out.number(static_cast<uint64_t>(EntryKind::kStoredValue));
  }
  return out.take();
}

io::Entry decode_head(std::string_view name, std::string_view head) {
  base::PackedReader in(head);
  io::Entry entry;
  entry.name = name;
  entry.path = in.number() != 0 ? unpack_path(in) : io::Path{entry.name};
  switch (EntryKind{in.number()}) {
    case EntryKind::kTensor: {
      const uint64_t dtype = in.number();
      if (dtype >= io::dtypes().size()) {
        throw base::PackedError("a dtype is unknown");
      }
      entry.dtype = io::Dtype{static_cast<uint8_t>(dtype)};
      entry.shape = in.numbers();
      break;
    }
    case EntryKind::kValue: {
      base::JsonReader value(in.text(), 4 * kMostValueDepth);
      entry.value = std::make_shared<io::Value>(read_value(value));
      value.finish();
      break;
    }
    case EntryKind::kStoredValue:
      entry.stored_value.emplace();
      break;
    default:
      throw base::PackedError("an entry is of an unknown kind");
  }
  in.finish();
  return entry;
}

void pack_entry(base::PackedWriter& out, const io::Entry& entry) {
  out.text(entry.name);
  out.text(encode_head(entry));
  if (entry.stored_value) {
    pack_stored(out, *entry.stored_value);
  }
  out.number(entry.chunks.size());
  for (const io::Chunk& chunk : entry.chunks) {
    out.numbers(chunk.box.offsets);
    out.numbers(chunk.box.sizes);
    pack_stored(out, chunk.stored);
  }
}

std::string print_type(const io::Entry& tensor) {
  return std::string(info_of(*tensor.dtype).name) + io::print(tensor.shape);
}

std::string print_path(const io::Path& path) {
  base::JsonWriter out;
  write_path(out, path);
  return out.take();
}

// Texts of records must outlive it.
class Merger {
 public:
  explicit Merger(const io::SaveTicket& ticket) : ticket_(ticket) {}

  // Adds the records of the rank that comes next.
  void add(const std::string& records) {
    try {
      read(records);
    } catch (const base::PackedError& error) {
      refuse(error.what());
    } catch (const base::JsonError& error) {
      refuse(error.what());
    }
    ++rank_;
  }

  io::Contents take() { return std::move(contents_); }

 private:
  struct Known {
    size_t entry;
    std::string_view head;
  };

  [[noreturn]] void refuse(const std::string& problem) const {
    io::throw_usage(ticket_.path, "these are no records of a rank: " + problem);
  }

  void read(std::string_view records) {
    base::PackedReader in(records);
    check_sender(in);
    const size_t first_file = contents_.files.size();
    for (size_t left = in.count(); left > 0; --left) {
      const std::string_view name = in.text();
      contents_.files.push_back({std::string(name), in.number()});
    }
    for (size_t left = in.count(); left > 0; --left) {
      add_entry(in, first_file);
    }
    in.finish();
  }

  void check_sender(base::PackedReader& in) const {
    const std::string_view token = in.text();
    const uint64_t rank = in.number();
    if (token != ticket_.token || rank != rank_) {
      io::throw_usage(
          ticket_.path, "records " + std::to_string(rank_) +
                            " are those of rank " + std::to_string(rank) +
                            (token == ticket_.token ? "" : " of another save"));
    }
  }

  void add_entry(base::PackedReader& in, size_t first_file) {
    const std::string_view name = in.text();
    const std::string_view head = in.text();
    const auto [found, is_new] =
        by_name_.try_emplace(name, Known{contents_.entries.size(), head});
    if (is_new) {
      contents_.entries.push_back(decode_head(name, head));
    } else {
      check_twin(name, head, found->second);
    }
    io::Entry& entry = contents_.entries[found->second.entry];
    if (entry.stored_value) {
      entry.stored_value = unpack_stored(in, first_file);
    }
    for (size_t left = in.count(); left > 0; --left) {
      io::Chunk& chunk = entry.chunks.emplace_back();
      chunk.box.offsets = in.numbers();
      chunk.box.sizes = in.numbers();
      chunk.stored = unpack_stored(in, first_file);
    }
  }

  // Two ranks may have chunks of one tensor.
  void check_twin(
      std::string_view name, std::string_view head, const Known& known) const {
    const io::Entry& first = contents_.entries[known.entry];
    if (head == known.head && first.is_tensor()) {
      return;
    }
    const io::Entry entry = decode_head(name, head);
    const std::string who =
        "'" + base::escape(name) + "' of rank " + std::to_string(rank_);
    if (!first.is_tensor() || !entry.is_tensor()) {
      io::throw_usage(
          ticket_.path,
          who + " is saved twice; one rank saves a value for all");
    }
    if (first.path != entry.path) {
      io::throw_usage(
          ticket_.path, who + " has the path " + print_path(entry.path) +
                            "; another rank says " + print_path(first.path));
    }
    io::throw_usage(
        ticket_.path, who + " is " + print_type(entry) +
                          "; another rank says " + print_type(first));
  }

  const io::SaveTicket& ticket_;
  uint64_t rank_ = 0;
  io::Contents contents_;
  std::unordered_map<std::string_view, Known> by_name_;
};

}  // namespace

std::string encode_records(const RankRecords& records) {
  base::PackedWriter out;
  out.text(records.token);
  out.number(static_cast<uint64_t>(records.rank));
  out.number(records.contents.files.size());
  for (const io::StoredFile& file : records.contents.files) {
    out.text(file.name);
    out.number(file.bytes);
  }
  out.number(records.contents.entries.size());
  for (const io::Entry& entry : records.contents.entries) {
    pack_entry(out, entry);
  }
  return out.take();
}

io::Contents merge_records(
    const io::SaveTicket& ticket, const std::vector<std::string>& records) {
  if (static_cast<int64_t>(records.size()) != ticket.ranks) {
    io::throw_usage(
        ticket.path, "records of " + std::to_string(records.size()) +
                         " ranks for a save by " +
                         std::to_string(ticket.ranks));
  }
  Merger merger(ticket);
  for (const std::string& of_rank : records) {
    merger.add(of_rank);
  }
  io::Contents contents = merger.take();
  check_counts(ticket.path, contents);
  check_contents(ticket.path, contents);
  return contents;
}

}  // namespace tessera::detail::inline io_layer
