#include <io/safetensors/index_file.h>

#include <base/escape.h>
#include <base/json.h>
#include <io/files/error.h>
#include <io/files/folder.h>

namespace tessera::detail::inline io_layer {

namespace {

constexpr const char* kOtherFiles = "TESSERA_FILES";

std::string read_plain_name(base::JsonReader& in, const std::string& path) {
  std::string file = in.read_string();
  if (const std::string problem = plain_name_problem(file); !problem.empty()) {
    io::throw_corrupt(path, "the file '" + base::escape(file) + "' " + problem);
  }
  return file;
}

void read_metadata(
    base::JsonReader& in, const std::string& path, SafetensorsIndex& index) {
  in.begin_object();
  while (in.next_key()) {
    // Some writers have it as a float, some leave it out: it decides nothing.
    if (in.key() == "total_size" && in.peek() == base::JsonKind::kInteger) {
      index.total_size = in.read_unsigned();
    } else if (in.key() == kOtherFiles) {
      in.begin_array();
      while (in.next_element()) {
        index.other_files.push_back(read_plain_name(in, path));
      }
    } else {
      in.skip_value();
    }
  }
}

void read_weight_map(
    base::JsonReader& in, const std::string& path, SafetensorsIndex& index) {
  in.begin_object();
  while (in.next_key()) {
    const std::string name = in.key();
    index.weight_map.emplace(name, read_plain_name(in, path));
  }
}

}  // namespace

std::string print_index(const SafetensorsIndex& index) {
  base::JsonWriter out;
  out.begin_object().key("metadata").begin_object();
  out.key("total_size").unsigned_integer(index.total_size);
  if (!index.other_files.empty()) {
    out.key(kOtherFiles).begin_array();
    for (const std::string& file : index.other_files) {
      out.string(file);
    }
    out.end_array();
  }
  out.end_object();
  out.key("weight_map").begin_object();
  for (const auto& [name, file] : index.weight_map) {
    out.key(name).string(file);
  }
  return out.end_object().end_object().take() + "\n";
}

SafetensorsIndex parse_index(const std::string& path, std::string_view text) {
  SafetensorsIndex index;
  bool has_map = false;
  try {
    base::JsonReader in(text);
    in.begin_object();
    while (in.next_key()) {
      if (in.key() == "metadata" && in.peek() == base::JsonKind::kObject) {
        read_metadata(in, path, index);
      } else if (in.key() == "weight_map") {
        read_weight_map(in, path, index);
        has_map = true;
      } else {
        in.skip_value();
      }
    }
    in.finish();
  } catch (const base::JsonError& error) {
    io::throw_corrupt(path, std::string("is wrong: ") + error.what());
  }
  if (!has_map) {
    io::throw_corrupt(path, "has no weight_map");
  }
  return index;
}

}  // namespace tessera::detail::inline io_layer
