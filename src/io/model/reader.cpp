#include <io/model/reader.h>

#include <base/escape.h>
#include <io/files/error.h>

namespace tessera::io {

std::string_view name_of(Format format) {
  switch (format) {
    case Format::kTessera:
      return "tessera";
    case Format::kDcp:
      return "dcp";
    case Format::kSafetensors:
      return "safetensors";
  }
  return "";
}

std::string_view unchecked_in(Format format) {
  switch (format) {
    case Format::kTessera:
      return "";
    case Format::kDcp:
      return ".metadata has no checksum; elements have that of their zip";
    case Format::kSafetensors:
      return "safetensors has no checksums: a changed element is not seen";
  }
  return "";
}

Format format_named(std::string_view name) {
  for (const Format format :
       {Format::kTessera, Format::kDcp, Format::kSafetensors}) {
    if (name == name_of(format)) {
      return format;
    }
  }
  throw_usage(
      "format", "'" + base::escape(name) +
                    "' is none; there are tessera, dcp and safetensors");
}

Reader::Reader(Format format, std::string path, Contents contents)
    : format_(format), path_(std::move(path)), contents_(std::move(contents)) {
  for (size_t i = 0; i < contents_.entries.size(); ++i) {
    by_name_.emplace(contents_.entries[i].name, i);
  }
}

const Entry* Reader::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &contents_.entries[found->second];
}

void Reader::read(
    const Entry& tensor, const Box& box, const Target& target) const {
  for (const detail::Overlap& overlap :
       detail::overlaps_of(path_, tensor, box, target)) {
    read_chunk(tensor, overlap.chunk, overlap.part, overlap.target);
  }
}

void Reader::read_chunk(
    const Entry& tensor, size_t chunk, const Box& part,
    const Target& target) const {
  const Box& box = tensor.chunks.at(chunk).box;
  if (element_count(part.sizes) == 0) {
    return;
  }
  if (const auto inside = intersect(box, part); inside != part) {
    throw_usage(
        path_, "'" + base::escape(tensor.name) + "': " + print(part) +
                   " does not lie in chunk " + std::to_string(chunk) + ", " +
                   print(box));
  }
  const auto payload = open_payload(tensor, chunk);
  copy_part(*payload, box, part, element_bytes(*tensor.dtype), target);
  payload->finish();
}

Value Reader::read_value(const Entry& entry) const {
  if (entry.is_tensor()) {
    throw_usage(path_, "'" + base::escape(entry.name) + "' is a tensor");
  }
  return entry.value != nullptr ? *entry.value : load_value(entry);
}

void Reader::verify(const Entry& entry) const {
  if (!entry.is_tensor()) {
    read_value(entry);
  }
  for (size_t i = 0; i < entry.chunks.size(); ++i) {
    verify_payload(*open_payload(entry, i));
  }
}

void Reader::verify() const {
  for (const Entry& entry : entries()) {
    verify(entry);
  }
  verify_files();
}

}  // namespace tessera::io
