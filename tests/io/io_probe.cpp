// Reads and rewrites checkpoints for tests/io/interop_test.py.
//
//   io_probe list PATH                   entries, paths and values as JSON
//   io_probe dump PATH NAME              bytes of a tensor, row-major
//   io_probe verify PATH
//   io_probe convert PATH TO FORMAT [R]  the same contents in another format,
//                                        tensors split along dim 0 over R ranks
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include <base/json.h>
#include <io/files/error.h>
#include <io/model/entry_json.h>
#include <io/model/value_json.h>
#include <io/open_checkpoint.h>
#include <io/save.h>

namespace {

using namespace tessera;  // NOLINT(google-build-using-namespace)

std::string read_all(const io::Reader& reader, const io::Entry& tensor) {
  std::string bytes(
      static_cast<size_t>(*io::byte_count(tensor.shape, *tensor.dtype)), '\0');
  reader.read(tensor, io::box_of(tensor.shape), {bytes.data()});
  return bytes;
}

void list(const io::Reader& reader) {
  base::JsonWriter out;
  out.begin_object().key("format").string(name_of(reader.format()));
  out.key("entries").begin_array();
  for (const io::Entry& entry : reader.entries()) {
    out.begin_object().key("name").string(entry.name).key("path");
    detail::write_path(out, entry.path);
    if (entry.is_tensor()) {
      out.key("dtype").string(info_of(*entry.dtype).name);
      out.key("shape").integers(entry.shape);
      out.key("chunks").unsigned_integer(entry.chunks.size());
    } else {
      out.key("value");
      const io::Value value = reader.read_value(entry);
      if (value.kind() == io::Value::Kind::kOpaque) {
        out.begin_object().key("opaque").string(value.opaque_text());
        out.end_object();
      } else {
        detail::write_value(out, value);
      }
    }
    out.end_object();
  }
  std::cout << out.end_array().end_object().take() << "\n";
}

// The rows of dim 0 that a rank gets: 5 over 2 -> 3 2.
io::Box part_of(const io::Entry& tensor, int64_t rank, int64_t ranks) {
  io::Box box = io::box_of(tensor.shape);
  const int64_t rows = (box.sizes[0] + ranks - 1) / ranks;
  box.offsets[0] = std::min(rank * rows, tensor.shape[0]);
  box.sizes[0] = std::min(rows, tensor.shape[0] - box.offsets[0]);
  return box;
}

io::RankContents contents_of(
    const io::Reader& reader, int64_t rank, int64_t ranks) {
  io::RankContents contents;
  for (const io::Entry& entry : reader.entries()) {
    if (!entry.is_tensor()) {
      if (rank == 0) {
        contents.values.push_back(
            {entry.name, entry.path, reader.read_value(entry)});
      }
      continue;
    }
    const bool is_split = ranks > 1 && !entry.shape.empty();
    if (rank == 0 || is_split) {
      contents.chunks.push_back(
          {entry.name, entry.path, *entry.dtype, entry.shape,
           is_split ? part_of(entry, rank, ranks) : io::box_of(entry.shape)});
    }
  }
  return contents;
}

std::string write_rank(
    const io::Reader& reader, const std::string& ticket, int64_t rank,
    int64_t ranks) {
  const io::RankContents contents = contents_of(reader, rank, ranks);
  const auto writer = io::open_rank_writer(ticket, rank, contents);
  for (size_t i = 0; i < contents.chunks.size(); ++i) {
    const io::TensorChunk& chunk = contents.chunks[i];
    std::string bytes(
        static_cast<size_t>(*io::byte_count(chunk.box.sizes, chunk.dtype)),
        '\0');
    reader.read(*reader.find(chunk.name), chunk.box, {bytes.data()});
    // In two portions, as a program does that copies from a device.
    const size_t half = bytes.size() / 2;
    writer->append(i, bytes.data(), half);
    writer->append(i, bytes.data() + half, bytes.size() - half);
  }
  return writer->finish();
}

void convert(
    const io::Reader& reader, const std::string& to, const std::string& format,
    int64_t ranks) {
  io::SaveOptions options;
  options.format = io::format_named(format);
  options.ranks = ranks;
  options.overwrite = true;
  io::Save save(to, options);
  std::vector<std::string> records;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    records.push_back(write_rank(reader, save.ticket(), rank, ranks));
  }
  for (const std::string& left : save.commit(records)) {
    std::cerr << left << "\n";
  }
}

int run(const std::vector<std::string>& arguments) {
  const auto reader = io::open_checkpoint(arguments.at(1));
  if (arguments[0] == "list") {
    list(*reader);
  } else if (arguments[0] == "dump") {
    const io::Entry* tensor = reader->find(arguments.at(2));
    if (tensor == nullptr) {
      std::cerr << "no tensor " << arguments[2] << "\n";
      return 1;
    }
    std::cout << read_all(*reader, *tensor);
  } else if (arguments[0] == "verify") {
    reader->verify();
  } else if (arguments[0] == "convert") {
    convert(
        *reader, arguments.at(2), arguments.at(3),
        arguments.size() > 4 ? std::stoll(arguments[4]) : 1);
  } else {
    std::cerr << "unknown command " << arguments[0] << "\n";
    return 2;
  }
  return 0;
}

}  // namespace

int main(int count, char** values) {
  try {
    return run({values + 1, values + count});
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
