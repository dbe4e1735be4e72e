#include <io/model/payload.h>

#include <algorithm>
#include <cstring>

#include <base/escape.h>
#include <io/files/error.h>
#include <io/model/check_entry.h>

namespace tessera::detail::inline io_layer {

namespace {

// One dim of a copy; strides in bytes.
struct CopyDim {
  int64_t size;
  int64_t source;
  int64_t target;
};

// The dims of a copy, in the order in which bytes lie in the source, without
// those of size 1, neighbours merged where both sides allow.
//   rows 1..2 of 4 x 6 floats into 2 x 6:  {2, 24, 24}, {6, 4, 4} -> {12, 4, 4}
std::vector<CopyDim> plan_dims(
    const Payload& payload, const io::Box& part, int64_t item,
    const io::Target& target) {
  const std::vector<int64_t> row_major = row_major_strides(part.sizes);
  const std::vector<int64_t>& strides =
      target.strides.empty() ? row_major : target.strides;
  std::vector<CopyDim> dims;
  for (size_t d = 0; d < part.sizes.size(); ++d) {
    if (part.sizes[d] != 1) {
      dims.push_back(
          {part.sizes[d], payload.strides[d] * item, strides[d] * item});
    }
  }
  std::stable_sort(
      dims.begin(), dims.end(),
      [](const CopyDim& a, const CopyDim& b) { return a.source > b.source; });
  std::vector<CopyDim> merged;
  for (const CopyDim& dim : dims) {
    if (!merged.empty() && merged.back().source == dim.size * dim.source &&
        merged.back().target == dim.size * dim.target) {
      merged.back() = {merged.back().size * dim.size, dim.source, dim.target};
    } else {
      merged.push_back(dim);
    }
  }
  return merged;
}

// A disk reads no less than this, and a smaller read costs as much.
constexpr size_t kPage = 4096;

// Reads bytes of a payload, small runs through the window that was read last.
class WindowReader {
 public:
  explicit WindowReader(Payload& payload) : payload_(payload) {}

  void read(uint64_t offset, char* out, size_t size) {
    if (size >= kPage && payload_.read_unchecked(offset, out, size)) {
      return;
    }
    while (size > 0) {
      const uint64_t index = offset / payload_.window();
      const uint64_t begin = index * payload_.window();
      const size_t window = payload_.window_size(index);
      const auto skip = static_cast<size_t>(offset - begin);
      const size_t part = std::min(size, window - skip);
      if (part == window) {
        payload_.read_window(index, out);  // all of it is wanted: no copy
      } else {
        std::memcpy(out, load(index) + skip, part);
      }
      out += part;
      offset += part;
      size -= part;
    }
  }

 private:
  const char* load(uint64_t index) {
    if (!is_loaded_ || loaded_ != index) {
      bytes_.resize(payload_.window_size(index));
      is_loaded_ = false;
      payload_.read_window(index, bytes_.data());
      loaded_ = index;
      is_loaded_ = true;
    }
    return bytes_.data();
  }

  Payload& payload_;
  std::vector<char> bytes_;
  bool is_loaded_ = false;
  uint64_t loaded_ = 0;
};

// Runs over all but the innermost dim, which is a run of bytes or single
// elements.
void copy_dims(
    WindowReader& reader, std::vector<CopyDim> dims, uint64_t source,
    char* target, int64_t item) {
  if (dims.empty() || dims.back().source != item ||
      dims.back().target != item) {
    dims.push_back({1, item, item});
  }
  const auto run = static_cast<size_t>(dims.back().size * item);
  dims.pop_back();
  std::vector<int64_t> index(dims.size(), 0);
  for (;;) {
    reader.read(source, target, run);
    size_t d = dims.size();
    while (d > 0) {
      --d;
      source += static_cast<uint64_t>(dims[d].source);
      target += dims[d].target;
      if (++index[d] < dims[d].size) {
        break;
      }
      source -= static_cast<uint64_t>(dims[d].source * dims[d].size);
      target -= dims[d].target * dims[d].size;
      index[d] = 0;
      if (d == 0) {
        return;
      }
    }
    if (dims.empty()) {
      return;
    }
  }
}

}  // namespace

std::vector<int64_t> row_major_strides(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t d = sizes.size(); d-- > 1;) {
    strides[d - 1] = strides[d] * std::max<int64_t>(sizes[d], 1);
  }
  return strides;
}

size_t Payload::window_size(uint64_t index) const {
  return static_cast<size_t>(std::min(window_, bytes_ - index * window_));
}

bool fits_payload(
    const Payload& payload, const std::vector<int64_t>& sizes,
    int64_t element_bytes) {
  const std::optional<int64_t> count = io::element_count(sizes);
  if (!count || payload.strides.size() != sizes.size()) {
    return false;
  }
  if (*count == 0) {
    return true;
  }
  uint64_t last = payload.first_element;
  for (size_t d = 0; d < sizes.size(); ++d) {
    uint64_t reach = 0;
    if (payload.strides[d] < 0 ||
        __builtin_mul_overflow(sizes[d] - 1, payload.strides[d], &reach) ||
        __builtin_add_overflow(last, reach, &last)) {
      return false;
    }
  }
  return last < payload.bytes() / static_cast<uint64_t>(element_bytes);
}

void copy_part(
    Payload& payload, const io::Box& chunk, const io::Box& part,
    int64_t element_bytes, const io::Target& target) {
  if (io::element_count(part.sizes) == 0) {
    return;
  }
  uint64_t source = payload.first_element;
  for (size_t d = 0; d < part.sizes.size(); ++d) {
    source += static_cast<uint64_t>(
        (part.offsets[d] - chunk.offsets[d]) * payload.strides[d]);
  }
  WindowReader reader(payload);
  copy_dims(
      reader, plan_dims(payload, part, element_bytes, target),
      source * static_cast<uint64_t>(element_bytes),
      static_cast<char*>(target.data), element_bytes);
}

void verify_payload(Payload& payload) {
  std::vector<char> bytes;
  for (uint64_t i = 0; i < payload.window_count(); ++i) {
    bytes.resize(payload.window_size(i));
    payload.read_window(i, bytes.data());
  }
  payload.finish();
}

std::vector<Overlap> overlaps_of(
    const std::string& path, const io::Entry& tensor, const io::Box& box,
    const io::Target& target) {
  if (!tensor.is_tensor()) {
    io::throw_usage(path, "'" + base::escape(tensor.name) + "' is no tensor");
  }
  check_box(path, tensor.name, box, tensor.shape);
  const std::vector<int64_t> strides =
      target.strides.empty() ? row_major_strides(box.sizes) : target.strides;
  std::vector<Overlap> overlaps;
  for (size_t i = 0; i < tensor.chunks.size(); ++i) {
    const auto part = intersect(tensor.chunks[i].box, box);
    if (!part || io::element_count(part->sizes) == 0) {
      continue;
    }
    int64_t first = 0;
    for (size_t d = 0; d < box.sizes.size(); ++d) {
      first += (part->offsets[d] - box.offsets[d]) * strides[d];
    }
    first *= io::element_bytes(*tensor.dtype);
    overlaps.push_back(
        {i, *part, {static_cast<char*>(target.data) + first, strides}});
  }
  return overlaps;
}

}  // namespace tessera::detail::inline io_layer
