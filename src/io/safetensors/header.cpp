#include <io/safetensors/header.h>

#include <algorithm>
#include <tuple>

#include <base/escape.h>
#include <base/json.h>
#include <io/files/error.h>
#include <io/model/check_entry.h>
#include <io/model/entry.h>
#include <io/model/limits.h>

namespace tessera::detail::inline io_layer {

namespace {

using io::throw_corrupt;

std::string quoted(std::string_view name) {
  return "tensor '" + base::escape(name.substr(0, 200)) + "'";
}

io::Dtype dtype_named(
    const std::string& path, const std::string& tensor,
    const std::string& name) {
  const auto dtype = io::find_safetensors_dtype(name);
  if (!dtype) {
    io::throw_unsupported(
        path, quoted(tensor) + " has the dtype '" + base::escape(name) +
                  "', which tensors of LibTorch do not have");
  }
  return *dtype;
}

// From the file's elements to torch's.
void unpack_shape(const std::string& path, SafetensorsTensor& tensor) {
  const int64_t packed = packed_elements(tensor.dtype);
  if (packed == 1) {
    return;
  }
  if (tensor.shape.empty() || tensor.shape.back() % packed != 0) {
    throw_corrupt(
        path, quoted(tensor.name) +
                  ": F4 comes in pairs along the last dim; "
                  "the shape is " +
                  io::print(tensor.shape));
  }
  tensor.shape.back() /= packed;
}

SafetensorsTensor read_tensor(
    base::JsonReader& in, const std::string& path, const std::string& name) {
  SafetensorsTensor tensor;
  tensor.name = name;
  std::string dtype;
  std::vector<int64_t> offsets;
  bool has_shape = false;
  in.begin_object();
  while (in.next_key()) {
    if (in.key() == "dtype") {
      dtype = in.read_string();
    } else if (in.key() == "shape") {
      tensor.shape = in.read_integers();
      has_shape = true;
    } else if (in.key() == "data_offsets") {
      offsets = in.read_integers();
    } else {
      in.skip_value();
    }
  }
  if (!has_shape || offsets.size() != 2 || offsets[0] < 0 ||
      offsets[1] < offsets[0]) {
    throw_corrupt(
        path, quoted(name) +
                  " needs a dtype, a shape, and data_offsets [begin, end]; "
                  "they are " +
                  io::print(offsets));
  }
  check_entry_name(path, name);
  tensor.dtype = dtype_named(path, name, dtype);
  tensor.begin = static_cast<uint64_t>(offsets[0]);
  tensor.end = static_cast<uint64_t>(offsets[1]);
  unpack_shape(path, tensor);
  check_shape(path, name, tensor.dtype, tensor.shape);
  return tensor;
}

void read_metadata(base::JsonReader& in, SafetensorsHeader& header) {
  in.begin_object();
  while (in.next_key()) {
    const std::string key = in.key();
    header.metadata.emplace(key, in.read_string());
  }
}

SafetensorsHeader read_json(const std::string& path, std::string_view json) {
  SafetensorsHeader header;
  base::JsonReader in(json, 16);
  in.begin_object();
  while (in.next_key()) {
    const std::string name = in.key();
    if (name == kMetadataKey) {
      read_metadata(in, header);
      continue;
    }
    if (header.tensors.size() == kMostEntries) {
      throw_corrupt(path, "has more than 1,000,000 tensors");
    }
    header.tensors.push_back(read_tensor(in, path, name));
  }
  in.finish();
  return header;
}

bool comes_before(const SafetensorsTensor& a, const SafetensorsTensor& b) {
  return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
}

// Tensors follow each other without gaps and fill the file.
void check_bytes(
    const std::string& path, const SafetensorsHeader& header,
    uint64_t data_bytes) {
  uint64_t end = 0;
  for (const SafetensorsTensor& tensor : header.tensors) {
    const auto bytes =
        static_cast<uint64_t>(*io::byte_count(tensor.shape, tensor.dtype));
    if (tensor.begin != end || tensor.end - tensor.begin != bytes) {
      throw_corrupt(
          path, quoted(tensor.name) + " lies in bytes " +
                    std::to_string(tensor.begin) + " to " +
                    std::to_string(tensor.end) + "; expected " +
                    std::to_string(bytes) + " bytes from " +
                    std::to_string(end) + " on, without a gap");
    }
    end = tensor.end;
  }
  if (end != data_bytes) {
    throw_corrupt(
        path, "has " + std::to_string(data_bytes) +
                  " bytes behind its header; its tensors need " +
                  std::to_string(end));
  }
}

void write_tensor(base::JsonWriter& out, const SafetensorsTensor& tensor) {
  std::vector<int64_t> shape = tensor.shape;
  if (!shape.empty()) {
    shape.back() *= packed_elements(tensor.dtype);
  }
  out.key(tensor.name).begin_object();
  out.key("dtype").string(info_of(tensor.dtype).safetensors);
  out.key("shape").integers(shape);
  out.key("data_offsets").begin_array();
  out.unsigned_integer(tensor.begin).unsigned_integer(tensor.end);
  out.end_array().end_object();
}

void place_tensors(const std::string& path, SafetensorsHeader& header) {
  std::sort(
      header.tensors.begin(), header.tensors.end(),
      [](const SafetensorsTensor& a, const SafetensorsTensor& b) {
        const int64_t size_a = element_bytes(a.dtype);
        const int64_t size_b = element_bytes(b.dtype);
        return size_a != size_b ? size_a > size_b : a.name < b.name;
      });
  uint64_t end = 0;
  for (SafetensorsTensor& tensor : header.tensors) {
    if (info_of(tensor.dtype).safetensors.empty() ||
        (tensor.shape.empty() && packed_elements(tensor.dtype) > 1)) {
      io::throw_unsupported(
          path, quoted(tensor.name) + " has the dtype " +
                    std::string(info_of(tensor.dtype).name) +
                    ", which safetensors does not have; save it in the "
                    "format tessera or dcp");
    }
    tensor.begin = end;
    end += static_cast<uint64_t>(*io::byte_count(tensor.shape, tensor.dtype));
    tensor.end = end;
  }
}

}  // namespace

SafetensorsHeader parse_safetensors_header(
    const std::string& path, std::string_view json, uint64_t data_bytes) {
  if (!json.starts_with('{')) {
    throw_corrupt(path, "is no safetensors file: its header begins without {");
  }
  try {
    SafetensorsHeader header = read_json(path, json);
    header.data_offset = kHeaderLengthBytes + json.size();
    std::stable_sort(
        header.tensors.begin(), header.tensors.end(), &comes_before);
    check_bytes(path, header, data_bytes);
    return header;
  } catch (const base::JsonError& error) {
    throw_corrupt(path, std::string("its header is wrong: ") + error.what());
  }
}

SafetensorsHeader read_safetensors_header(const File& file) {
  const uint64_t bytes = file.size();
  uint8_t length_bytes[kHeaderLengthBytes];
  if (bytes < kHeaderLengthBytes) {
    throw_corrupt(
        file.path(),
        "is no safetensors file: it has " + std::to_string(bytes) + " bytes");
  }
  file.read(length_bytes, kHeaderLengthBytes, 0);
  uint64_t length = 0;
  for (size_t i = kHeaderLengthBytes; i-- > 0;) {
    length = length << 8 | length_bytes[i];
  }
  if (length > kMostHeaderBytes || length > bytes - kHeaderLengthBytes) {
    throw_corrupt(
        file.path(), "says that its header has " + std::to_string(length) +
                         " bytes, in a file of " + std::to_string(bytes) +
                         "; headers have at most 100,000,000");
  }
  std::string json(length, '\0');
  file.read(json.data(), json.size(), kHeaderLengthBytes);
  return parse_safetensors_header(
      file.path(), json, bytes - kHeaderLengthBytes - length);
}

std::string print_safetensors_header(
    const std::string& path, SafetensorsHeader& header) {
  place_tensors(path, header);
  base::JsonWriter out;
  out.begin_object();
  if (!header.metadata.empty()) {
    out.key(kMetadataKey).begin_object();
    for (const auto& [key, value] : header.metadata) {
      out.key(key).string(value);
    }
    out.end_object();
  }
  for (const SafetensorsTensor& tensor : header.tensors) {
    write_tensor(out, tensor);
  }
  std::string json = out.end_object().take();
  json.resize((json.size() + 7) / 8 * 8, ' ');
  if (json.size() > kMostHeaderBytes) {
    io::throw_unsupported(
        path, "needs a header of " + std::to_string(json.size()) +
                  " bytes; safetensors has at most 100,000,000");
  }
  header.data_offset = kHeaderLengthBytes + json.size();
  std::string text;
  for (size_t i = 0; i < kHeaderLengthBytes; ++i) {
    text.push_back(static_cast<char>(json.size() >> (8 * i) & 255));
  }
  return text + json;
}

}  // namespace tessera::detail::inline io_layer
