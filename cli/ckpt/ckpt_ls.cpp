// tessera ckpt ls: names, types, shapes, parts and sizes, as a tree of modules.
#include <base/escape.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <set>
#include <unordered_map>

#include "ckpt.h"

namespace tessera::cli {
namespace {

struct LsOptions {
  std::string path;
  bool json = false;
  bool follow_links = false;
};

/// A part of names between points, and what lies below it.
struct Module {
  std::string name;
  const io::Entry* entry = nullptr;
  std::vector<std::unique_ptr<Module>> children;
  std::unordered_map<std::string, Module*> by_name;
  uint64_t bytes = 0;

  Module& child(const std::string& part) {
    Module*& known = by_name[part];
    if (known == nullptr) {
      children.push_back(std::make_unique<Module>());
      known = children.back().get();
      known->name = part;
    }
    return *known;
  }
};

/// Cells of a line; a value has its text in the second one.
struct Line {
  std::string name;
  std::vector<std::string> cells;
};

void add_entry(Module& root, const io::Entry& entry) {
  const uint64_t bytes = entry.is_tensor() ? tensor_bytes(entry) : 0;
  Module* at = &root;
  size_t begin = 0;
  for (;;) {
    at->bytes += bytes;
    const size_t end = std::min(entry.name.find('.', begin), entry.name.size());
    at = &at->child(entry.name.substr(begin, end - begin));
    if (end == entry.name.size()) {
      break;
    }
    begin = end + 1;
  }
  at->bytes += bytes;
  at->entry = &entry;
}

/// Returns how a tensor is stored: "whole", "2 x 1" parts per dim, "5 boxes".
std::string parts_of(const io::Entry& tensor) {
  if (tensor.chunks.size() <= 1) {
    return "whole";
  }
  std::string text;
  size_t grid = 1;
  for (size_t d = 0; d < tensor.shape.size(); ++d) {
    std::set<int64_t> offsets;
    for (const io::Chunk& chunk : tensor.chunks) {
      offsets.insert(chunk.box.offsets[d]);
    }
    grid *= offsets.size();
    text += (d == 0 ? "" : " x ") + std::to_string(offsets.size());
  }
  const auto count = static_cast<int64_t>(tensor.chunks.size());
  return grid == tensor.chunks.size() ? text : with_commas(count) + " boxes";
}

class Tree {
 public:
  explicit Tree(const io::Reader& reader) : reader_(reader) {
    lines_.push_back({"name", {"dtype", "shape", "parts", "size"}});
    Module root;
    for (const io::Entry& entry : reader.entries()) {
      add_entry(root, entry);
    }
    for (const auto& child : root.children) {
      add_lines(*child, 0);
    }
  }

  std::string draw(int width) const {
    const std::vector<int> widths = fitting_widths(width);
    std::string text;
    for (const Line& line : lines_) {
      text += draw_line(line, widths, width);
    }
    return text;
  }

 private:
  static constexpr size_t kCells = 4;
  static constexpr int kShortest = 24;  // of names, where shapes are long

  void add_lines(const Module& module, int depth) {
    const Module* at = &module;
    std::string name = at->name;
    while (at->entry == nullptr && at->children.size() == 1) {
      at = at->children[0].get();
      name += "." + at->name;
    }
    Line line{repeat(" ", 2 * depth) + base::escape(name), {}};
    if (at->entry == nullptr) {
      line.cells = {"", "", "", readable_bytes(at->bytes)};
    } else if (at->entry->is_tensor()) {
      line.cells = {
          std::string(info_of(*at->entry->dtype).name),
          io::print(at->entry->shape), parts_of(*at->entry),
          readable_bytes(tensor_bytes(*at->entry))};
    } else {
      line.cells = {"= " + base::escape(value_text(*at->entry))};
    }
    lines_.push_back(std::move(line));
    for (const auto& child : at->children) {
      add_lines(*child, depth + 1);
    }
  }

  std::string value_text(const io::Entry& entry) const {
    return value_json(reader_.read_value(entry))
        .dump(-1, ' ', true, Json::error_handler_t::replace);
  }

  /// Returns the width of names, then those of cells.
  std::vector<int> fitting_widths(int width) const {
    std::vector<int> widths(kCells + 1, 0);
    for (const Line& line : lines_) {
      widths[0] = std::max(widths[0], columns(line.name));
      for (size_t i = 0; line.cells.size() == kCells && i < kCells; ++i) {
        widths[i + 1] = std::max(widths[i + 1], columns(line.cells[i]));
      }
    }
    const int fixed = widths[1] + widths[4] + 2 * int(kCells);
    widths[3] = std::min(widths[3], 12);
    widths[2] =
        std::min(widths[2], std::max(width - fixed - widths[3] - kShortest, 8));
    widths[0] =
        std::min(widths[0], std::max(width - fixed - widths[2] - widths[3], 8));
    return widths;
  }

  static std::string draw_line(
      const Line& line, const std::vector<int>& widths, int width) {
    std::string text = line.name;
    if (columns(text) > widths[0]) {  // a line of its own
      text = base::wrap_lines(text, width, 4) + "\n";
    }
    const int used = text.ends_with('\n') ? 0 : columns(text);
    text += repeat(" ", widths[0] - used);
    if (line.cells.size() != kCells) {
      return text + "  " + shortened(line.cells[0], width - widths[0] - 2) +
             "\n";
    }
    for (size_t i = 0; i < kCells; ++i) {
      const std::string cell = shortened(line.cells[i], widths[i + 1]);
      text += "  " + (i + 1 == kCells ? pad_left(cell, widths[i + 1])
                                      : pad_right(cell, widths[i + 1]));
    }
    return text + "\n";
  }

  const io::Reader& reader_;
  std::vector<Line> lines_;
};

Json path_json(const io::Path& path) {
  Json parts = Json::array();
  for (const io::PathPart& part : path) {
    std::visit([&](const auto& key) { parts.push_back(key); }, part);
  }
  return parts;
}

Json tensor_json(const io::Reader& reader, const io::Entry& tensor) {
  Json chunks = Json::array();
  for (const io::Chunk& chunk : tensor.chunks) {
    chunks.push_back(
        {{"offsets", chunk.box.offsets},
         {"sizes", chunk.box.sizes},
         {"file", reader.files()[chunk.stored.file].name}});
  }
  return {
      {"name", tensor.name},
      {"path", path_json(tensor.path)},
      {"dtype", info_of(*tensor.dtype).name},
      {"shape", tensor.shape},
      {"bytes", tensor_bytes(tensor)},
      {"chunks", chunks}};
}

Json ls_json(const io::Reader& reader) {
  Json json = {
      {"path", reader.path()},
      {"format", io::name_of(reader.format())},
      {"bytes", summary_json(reader)["bytes"]},
      {"files", Json::array()},
      {"tensors", Json::array()},
      {"values", Json::array()}};
  for (const io::StoredFile& file : reader.files()) {
    json["files"].push_back({{"name", file.name}, {"bytes", file.bytes}});
  }
  for (const io::Entry& entry : reader.entries()) {
    if (entry.is_tensor()) {
      json["tensors"].push_back(tensor_json(reader, entry));
    } else {
      json["values"].push_back(
          {{"name", entry.name},
           {"path", path_json(entry.path)},
           {"value", value_json(reader.read_value(entry))}});
    }
  }
  return json;
}

int list_checkpoint(const LsOptions& options) {
  const auto reader = open_for_command(options.path, options.follow_links);
  if (options.json) {
    print_json(ls_json(*reader));
    return 0;
  }
  const Terminal terminal = detect_terminal(STDOUT_FILENO, false);
  print(
      wrapped(reader->path() + ": " + summary_of(*reader) + "\n\n", terminal) +
      Tree(*reader).draw(terminal.width));
  return 0;
}

}  // namespace

void set_up_ckpt_ls(CLI::App& ckpt, Invocation& invocation) {
  auto options = std::make_shared<LsOptions>();
  CLI::App* ls = ckpt.add_subcommand(
      "ls", "List tensors and values: names, dtypes, shapes, parts, sizes");
  ls->add_option("PATH", options->path, "a checkpoint of any format")
      ->required();
  ls->add_flag("--json", options->json, "print JSON");
  add_follow_links(*ls, options->follow_links);
  ls->callback([options, &invocation] {
    run_ckpt(invocation, [&] { return list_checkpoint(*options); });
  });
}

}  // namespace tessera::cli
