#include <io/model/records.h>

#include <unordered_map>

#include <base/escape.h>
#include <base/json.h>
#include <io/files/error.h>
#include <io/model/check_entry.h>
#include <io/model/entry_json.h>

namespace tessera::detail::inline io_layer {

namespace {

// Values may be nested 64 deep, with three brackets each.
constexpr size_t kDepth = 256;

class Merger {
 public:
  explicit Merger(const std::string& path) : path_(path) {}

  void add(RankRecords records) {
    const size_t first_file = contents_.files.size();
    for (io::StoredFile& file : records.contents.files) {
      contents_.files.push_back(std::move(file));
    }
    for (io::Entry& entry : records.contents.entries) {
      for (io::Chunk& chunk : entry.chunks) {
        chunk.stored.file += first_file;
      }
      if (entry.stored_value) {
        entry.stored_value->file += first_file;
      }
      add_entry(std::move(entry), records.rank);
    }
  }

  io::Contents take() { return std::move(contents_); }

 private:
  void add_entry(io::Entry entry, int64_t rank) {
    const auto [found, is_new] =
        by_name_.try_emplace(entry.name, contents_.entries.size());
    if (is_new) {
      contents_.entries.push_back(std::move(entry));
      return;
    }
    io::Entry& known = contents_.entries[found->second];
    const auto who = [&] {
      return "'" + base::escape(entry.name) + "' of rank " +
             std::to_string(rank);
    };
    if (!known.is_tensor() || !entry.is_tensor()) {
      io::throw_usage(
          path_, who() + " is saved twice; one rank saves a value for all");
    }
    if (known.dtype != entry.dtype || known.shape != entry.shape ||
        known.path != entry.path) {
      io::throw_usage(
          path_, who() + " is " + std::string(info_of(*entry.dtype).name) +
                     io::print(entry.shape) + "; another rank says " +
                     std::string(info_of(*known.dtype).name) +
                     io::print(known.shape));
    }
    for (io::Chunk& chunk : entry.chunks) {
      known.chunks.push_back(std::move(chunk));
    }
  }

  const std::string& path_;
  io::Contents contents_;
  std::unordered_map<std::string, size_t> by_name_;
};

}  // namespace

std::string encode_records(const RankRecords& records) {
  base::JsonWriter out;
  out.begin_object().key("token").string(records.token);
  out.key("rank").integer(records.rank).key("files").begin_array();
  for (const io::StoredFile& file : records.contents.files) {
    write_file(out, file);
  }
  out.end_array().key("entries").begin_array();
  for (const io::Entry& entry : records.contents.entries) {
    write_entry(out, entry);
  }
  out.end_array().end_object();
  return out.take();
}

RankRecords decode_records(const std::string& path, std::string_view bytes) {
  RankRecords records;
  try {
    base::JsonReader in(bytes, kDepth);
    in.begin_object();
    expect_key(in, "token");
    records.token = in.read_string();
    expect_key(in, "rank");
    records.rank = in.read_integer();
    expect_key(in, "files");
    in.begin_array();
    while (in.next_element()) {
      records.contents.files.push_back(read_file(in));
    }
    expect_key(in, "entries");
    in.begin_array();
    while (in.next_element()) {
      records.contents.entries.push_back(read_entry(in));
    }
    expect_end(in);
    in.finish();
  } catch (const base::JsonError& error) {
    io::throw_usage(
        path, std::string("these are no records of a rank: ") + error.what());
  }
  return records;
}

io::Contents merge_records(
    const io::SaveTicket& ticket, const std::vector<std::string>& records) {
  if (static_cast<int64_t>(records.size()) != ticket.ranks) {
    io::throw_usage(
        ticket.path, "records of " + std::to_string(records.size()) +
                         " ranks for a save by " +
                         std::to_string(ticket.ranks));
  }
  Merger merger(ticket.path);
  for (size_t i = 0; i < records.size(); ++i) {
    RankRecords decoded = decode_records(ticket.path, records[i]);
    if (decoded.token != ticket.token ||
        decoded.rank != static_cast<int64_t>(i)) {
      io::throw_usage(
          ticket.path,
          "records " + std::to_string(i) + " are those of rank " +
              std::to_string(decoded.rank) +
              (decoded.token == ticket.token ? "" : " of another save"));
    }
    merger.add(std::move(decoded));
  }
  io::Contents contents = merger.take();
  check_contents(ticket.path, contents);
  return contents;
}

}  // namespace tessera::detail::inline io_layer
