#include <io/safetensors/extra_metadata.h>

#include <base/json.h>
#include <io/files/error.h>
#include <io/model/entry_json.h>

namespace tessera::detail::inline io_layer {

namespace {

constexpr size_t kDepth = 256;

std::vector<int64_t> read_saved_offsets(base::JsonReader& in) {
  std::vector<int64_t> offsets;
  bool is_there = false;
  in.begin_object();
  while (in.next_key()) {
    if (in.key() == "saved_offsets") {
      offsets = in.read_integers();
      is_there = true;
    } else {
      in.skip_value();
    }
  }
  if (!is_there) {
    in.fail("expected saved_offsets");
  }
  return offsets;
}

io::Entry read_value_entry(base::JsonReader& in) {
  io::Entry entry = read_entry(in);
  if (entry.value == nullptr) {
    in.fail("expected a value");
  }
  return entry;
}

template <typename Read>
auto read_text(
    const std::string& path, std::string_view text, const char* key,
    const Read& read) {
  try {
    base::JsonReader in(text, kDepth);
    auto result = read(in);
    in.finish();
    return result;
  } catch (const base::JsonError& error) {
    io::throw_corrupt(
        path, std::string(key) + " of __metadata__ is wrong: " + error.what());
  }
}

ExtraState read_state(base::JsonReader& in) {
  ExtraState state;
  in.begin_object();
  expect_key(in, "shapes");
  in.begin_object();
  while (in.next_key()) {
    const std::string name = in.key();
    state.shapes.emplace(name, in.read_integers());
  }
  expect_key(in, "paths");
  in.begin_object();
  while (in.next_key()) {
    const std::string name = in.key();
    state.paths.emplace(name, read_path(in));
  }
  expect_key(in, "values");
  in.begin_array();
  while (in.next_element()) {
    state.values.push_back(read_value_entry(in));
  }
  expect_end(in);
  return state;
}

}  // namespace

std::string print_shard_offsets(const ShardOffsets& offsets) {
  base::JsonWriter out;
  out.begin_object();
  for (const auto& [name, list] : offsets) {
    out.key(name).begin_object().key("saved_offsets").integers(list);
    out.end_object();
  }
  return out.end_object().take();
}

ShardOffsets parse_shard_offsets(
    const std::string& path, std::string_view text) {
  return read_text(path, text, kShardingInfoKey, [](base::JsonReader& in) {
    ShardOffsets offsets;
    in.begin_object();
    while (in.next_key()) {
      const std::string name = in.key();
      offsets.emplace(name, read_saved_offsets(in));
    }
    return offsets;
  });
}

std::string print_extra_state(const ExtraState& state) {
  base::JsonWriter out;
  out.begin_object().key("shapes").begin_object();
  for (const auto& [name, shape] : state.shapes) {
    out.key(name).integers(shape);
  }
  out.end_object().key("paths").begin_object();
  for (const auto& [name, path] : state.paths) {
    out.key(name);
    write_path(out, path);
  }
  out.end_object().key("values").begin_array();
  for (const io::Entry& entry : state.values) {
    write_entry(out, entry);
  }
  return out.end_array().end_object().take();
}

ExtraState parse_extra_state(const std::string& path, std::string_view text) {
  return read_text(path, text, kStateKey, &read_state);
}

}  // namespace tessera::detail::inline io_layer
