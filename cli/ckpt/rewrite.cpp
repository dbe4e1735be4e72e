#include "rewrite.h"

#include <base/escape.h>
#include <base/json.h>
#include <io/files/error.h>
#include <io/model/tensor_reader.h>
#include <io/model/value_json.h>
#include <io/open_checkpoint.h>
#include <io/save.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <unordered_map>

#include "cli/text/progress.h"

namespace tessera::cli {
namespace {

// Ranks that write at a time, while a tensor is read once.
constexpr size_t kMostWriters = 32;

struct KeptValues {
  std::vector<io::NamedValue> values;
  std::vector<std::string> dropped;
};

/// Returns why no format of ours can hold a value; "" where they can.
std::string value_problem(const io::Value& value) {
  try {
    base::JsonWriter out;
    detail::write_value(out, value);
    return "";
  } catch (const io::Error& error) {
    return error.what();
  }
}

KeptValues values_to_write(
    const io::Reader& reader, const RewriteOptions& options) {
  KeptValues kept;
  std::string problems;
  for (const io::Entry& entry : reader.entries()) {
    if (entry.is_tensor()) {
      continue;
    }
    io::Value value = reader.read_value(entry);
    const std::string problem = value_problem(value);
    if (problem.empty()) {
      kept.values.push_back({entry.name, entry.path, std::move(value)});
    } else {
      kept.dropped.push_back(entry.name);
      problems += (problems.empty() ? "" : "; ") + base::escape(entry.name) +
                  ": " + problem;
    }
  }
  if (!problems.empty() && !options.drop_values) {
    throw UsageError(
        reader.path() + ": values that cannot be written: " + problems +
        "; --drop-values leaves them out");
  }
  return kept;
}

void check_dtypes(const io::Reader& reader, io::Format format) {
  for (const io::Entry& entry : reader.entries()) {
    if (format == io::Format::kSafetensors && entry.is_tensor() &&
        info_of(*entry.dtype).safetensors.empty()) {
      throw UsageError(
          reader.path() + ": safetensors has no " +
          std::string(info_of(*entry.dtype).name) + ", the dtype of '" +
          base::escape(entry.name) + "'; use --format tessera or dcp");
    }
  }
}

void check_target(const RewriteOptions& options) {
  std::error_code ignored;
  const auto folder = std::filesystem::path(options.to).parent_path();
  if (!folder.empty() && !std::filesystem::exists(folder, ignored)) {
    throw UsageError(
        options.to + ": there is no folder " + folder.string() +
        "; make it first");
  }
  if (!options.overwrite &&
      std::filesystem::exists(
          std::filesystem::symlink_status(options.to, ignored))) {
    throw UsageError(
        options.to +
        " is there already; choose another path, or pass --overwrite");
  }
}

uint64_t bytes_in(const Parts& parts) {
  uint64_t bytes = 0;
  for (const auto& chunks : parts) {
    for (const io::TensorChunk& chunk : chunks) {
      bytes +=
          static_cast<uint64_t>(*io::byte_count(chunk.box.sizes, chunk.dtype));
    }
  }
  return bytes;
}

/// Writes the parts of some ranks, tensor by tensor.
class RanksWriter {
 public:
  RanksWriter(
      const io::Reader& reader, const std::string& ticket, Progress& progress)
      : reader_(reader),
        ticket_(ticket),
        progress_(progress),
        bytes_(kPartBytes) {}

  void add_rank(int64_t rank, io::RankContents contents) {
    for (size_t i = 0; i < contents.chunks.size(); ++i) {
      places_[contents.chunks[i].name].push_back(
          {writers_.size(), i, contents.chunks[i].box});
    }
    writers_.push_back(
        io::open_rank_writer(ticket_, rank, std::move(contents)));
  }

  /// Returns the records of the ranks.
  std::vector<std::string> write() {
    for (const io::Entry& entry : reader_.entries()) {
      if (const auto places = places_.find(entry.name);
          places != places_.end()) {
        write_tensor(entry, places->second);
      }
    }
    std::vector<std::string> records;
    for (const auto& writer : writers_) {
      records.push_back(writer->finish());
    }
    return records;
  }

 private:
  struct Place {
    size_t writer;
    size_t chunk;
    io::Box box;
  };

  void write_tensor(const io::Entry& tensor, const std::vector<Place>& places) {
    io::TensorReader parts(reader_, tensor);
    for (const Place& place : places) {
      io::for_each_part(
          place.box, *tensor.dtype, kPartBytes, [&](const io::Box& part) {
            const auto size =
                static_cast<size_t>(*io::byte_count(part.sizes, *tensor.dtype));
            parts.read(part, {bytes_.data()});
            writers_[place.writer]->append(place.chunk, bytes_.data(), size);
            progress_.advance(size);
          });
    }
    parts.finish();
  }

  const io::Reader& reader_;
  const std::string& ticket_;
  Progress& progress_;
  std::vector<char> bytes_;
  std::vector<std::unique_ptr<io::RankWriter>> writers_;
  std::unordered_map<std::string, std::vector<Place>> places_;
};

void write_checkpoint(
    const io::Reader& reader, const RewriteOptions& options, io::Format format,
    const Parts& parts, std::vector<io::NamedValue> values,
    const std::string& title) {
  io::Save save(
      options.to, {.format = format,
                   .ranks = static_cast<int64_t>(parts.size()),
                   .overwrite = options.overwrite});
  Progress progress(title, bytes_in(parts), options.progress);
  std::vector<std::string> records;
  for (size_t begin = 0; begin < parts.size(); begin += kMostWriters) {
    RanksWriter writer(reader, save.ticket(), progress);
    const size_t end = std::min(begin + kMostWriters, parts.size());
    for (size_t rank = begin; rank < end; ++rank) {
      writer.add_rank(
          static_cast<int64_t>(rank),
          {parts[rank],
           rank == 0 ? std::move(values) : std::vector<io::NamedValue>()});
    }
    for (std::string& record : writer.write()) {
      records.push_back(std::move(record));
    }
  }
  for (const std::string& left : save.commit(records)) {
    std::fprintf(stderr, "tessera ckpt: %s\n", left.c_str());
  }
}

}  // namespace

void add_rewrite_options(CLI::App& command, RewriteOptions& options) {
  command.add_option("PATH", options.path, "a checkpoint of any format")
      ->required();
  command.add_option("TO", options.to, "where the new one is written")
      ->required();
  command.add_flag(
      "--overwrite", options.overwrite, "replace the checkpoint that is there");
  command.add_flag(
      "--drop-values", options.drop_values,
      "leave out values that cannot be written, and name them");
  command.add_flag("--json", options.json, "print JSON");
  add_follow_links(command, options.follow_links);
  command.add_flag(
      "--progress", options.progress,
      "a line for every tenth, on standard error");
}

io::TensorChunk chunk_of(const io::Entry& tensor, const io::Box& box) {
  return {tensor.name, tensor.path, *tensor.dtype, tensor.shape, box};
}

int rewrite_checkpoint(
    const io::Reader& reader, const RewriteOptions& options, io::Format format,
    const Parts& parts, const std::string& title) {
  check_target(options);
  check_dtypes(reader, format);
  KeptValues kept = values_to_write(reader, options);
  write_checkpoint(
      reader, options, format, parts, std::move(kept.values), title);
  const auto written = io::open_checkpoint(options.to);
  if (options.json) {
    Json json = summary_json(*written);
    json["dropped"] = kept.dropped;
    print_json(json);
    return 0;
  }
  std::string text = written->path() + ": " + summary_of(*written) + "\n";
  for (const std::string& name : kept.dropped) {
    text += "dropped: " + base::escape(name) + "\n";
  }
  print(wrapped(text, detect_terminal(STDOUT_FILENO, false)));
  return 0;
}

}  // namespace tessera::cli
