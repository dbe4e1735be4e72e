#include <tessera/layout/box.h>

#include <algorithm>
#include <ostream>

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include "base/text.h"
#include "layout/arithmetic.h"

namespace tessera {

int64_t Box::numel() const {
  if (empty()) {
    return 0;
  }
  const auto product = detail::checked_product(sizes);
  TORCH_CHECK_VALUE(
      product.has_value(), "Box::numel: the number of elements of ",
      to_string(*this), " exceeds 64 bits");
  return *product;
}

bool Box::empty() const {
  return std::any_of(
      sizes.begin(), sizes.end(), [](int64_t size) { return size <= 0; });
}

bool Box::contains(const std::vector<int64_t>& index) const {
  TORCH_CHECK_INDEX(
      index.size() == sizes.size(), "Box::contains: an index of ",
      to_string(*this), " has ", sizes.size(), " numbers; got ", index.size());
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (index[d] < offsets[d] ||
        index[d] >= detail::end_of(offsets[d], sizes[d])) {
      return false;
    }
  }
  return true;
}

Box whole(const std::vector<int64_t>& shape) {
  return {std::vector<int64_t>(shape.size(), 0), shape};
}

std::optional<Box> intersect(const Box& a, const Box& b) {
  TORCH_CHECK_VALUE(
      a.ndim() == b.ndim(), "intersect: boxes must have as many dims; got ",
      to_string(a), " and ", to_string(b));
  Box common = a;
  for (size_t d = 0; d < a.sizes.size(); ++d) {
    const int64_t begin = std::max(a.offsets[d], b.offsets[d]);
    const int64_t end = std::min(
        detail::end_of(a.offsets[d], a.sizes[d]),
        detail::end_of(b.offsets[d], b.sizes[d]));
    if (begin >= end) {
      return std::nullopt;
    }
    common.offsets[d] = begin;
    common.sizes[d] = end - begin;
  }
  return common;
}

std::string to_string(const Box& box) {
  std::vector<std::string> dims;
  for (size_t d = 0; d < box.sizes.size(); ++d) {
    dims.push_back(
        std::to_string(box.offsets[d]) + ":" +
        std::to_string(detail::end_of(box.offsets[d], box.sizes[d])));
  }
  return c10::str("[", base::join(dims, ", "), "]");
}

std::ostream& operator<<(std::ostream& out, const Box& box) {
  return out << to_string(box);
}

}  // namespace tessera
