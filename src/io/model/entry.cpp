#include <io/model/entry.h>

#include <algorithm>

#include <base/text.h>

namespace tessera::io {

std::optional<int64_t> element_count(const std::vector<int64_t>& sizes) {
  int64_t count = 1;
  bool overflows = false;
  for (const int64_t size : sizes) {
    if (size == 0) {
      return 0;
    }
    overflows |= size < 0 || __builtin_mul_overflow(count, size, &count);
  }
  return overflows ? std::nullopt : std::optional(count);
}

std::optional<int64_t> byte_count(
    const std::vector<int64_t>& sizes, Dtype dtype) {
  const std::optional<int64_t> count = element_count(sizes);
  int64_t bytes = 0;
  if (!count || __builtin_mul_overflow(*count, element_bytes(dtype), &bytes)) {
    return std::nullopt;
  }
  return bytes;
}

Box box_of(const std::vector<int64_t>& shape) {
  return {std::vector<int64_t>(shape.size(), 0), shape};
}

std::optional<Box> intersect(const Box& a, const Box& b) {
  const auto begin = [&](size_t d) {
    return std::max(a.offsets[d], b.offsets[d]);
  };
  const auto end = [&](size_t d) {
    return std::min(a.offsets[d] + a.sizes[d], b.offsets[d] + b.sizes[d]);
  };
  // Of many chunks few are shared: the others take no memory.
  for (size_t d = 0; d < a.sizes.size(); ++d) {
    if (begin(d) >= end(d)) {
      return std::nullopt;
    }
  }
  Box shared;
  for (size_t d = 0; d < a.sizes.size(); ++d) {
    shared.offsets.push_back(begin(d));
    shared.sizes.push_back(end(d) - begin(d));
  }
  return shared;
}

std::string print(const std::vector<int64_t>& list) {
  return "[" + base::join(list, ", ") + "]";
}

std::string print(const Box& box) {
  return "offsets " + print(box.offsets) + ", sizes " + print(box.sizes);
}

}  // namespace tessera::io
