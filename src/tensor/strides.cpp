#include <tensor/strides.h>

#include <algorithm>
#include <numeric>

#include <c10/util/accumulate.h>

namespace tessera::detail {

std::vector<int64_t> contiguous_strides(c10::IntArrayRef shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t next = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    strides[d] = next;
    next *= std::max<int64_t>(shape[d], 1);
  }
  return strides;
}

namespace {

std::vector<size_t> dims_by_stride(c10::IntArrayRef strides) {
  std::vector<size_t> order(strides.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return strides[a] < strides[b];
  });
  return order;
}

}  // namespace

bool is_non_overlapping(c10::IntArrayRef shape, c10::IntArrayRef strides) {
  if (c10::multiply_integers(shape) == 0) {
    return true;
  }
  int64_t reach = 0;
  for (size_t d : dims_by_stride(strides)) {
    if (shape[d] == 1) {
      continue;
    }
    if (strides[d] <= reach) {
      return false;
    }
    reach += (shape[d] - 1) * strides[d];
  }
  return true;
}

std::vector<int64_t> dense_strides(
    c10::IntArrayRef shape, c10::IntArrayRef like) {
  std::vector<size_t> order(shape.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return like[a] > like[b];
  });
  std::vector<int64_t> strides(shape.size());
  int64_t next = 1;
  for (size_t i = order.size(); i-- > 0;) {
    strides[order[i]] = next;
    next *= std::max<int64_t>(shape[order[i]], 1);
  }
  return strides;
}

bool is_dense(c10::IntArrayRef shape, c10::IntArrayRef strides) {
  const std::vector<size_t> order = dims_by_stride(strides);
  int64_t expected = 1;
  for (size_t d : order) {
    if (shape[d] == 0) {
      return true;
    }
    if (shape[d] == 1) {
      continue;
    }
    if (strides[d] != expected) {
      return false;
    }
    expected *= shape[d];
  }
  return true;
}

std::vector<int64_t> strides_in_format(
    c10::IntArrayRef shape, c10::IntArrayRef like, c10::MemoryFormat format) {
  switch (format) {
    case c10::MemoryFormat::Preserve:
      return is_dense(shape, like) ? like.vec() : contiguous_strides(shape);
    case c10::MemoryFormat::ChannelsLast:
      return c10::get_channels_last_strides_2d(shape);
    case c10::MemoryFormat::ChannelsLast3d:
      return c10::get_channels_last_strides_3d(shape);
    case c10::MemoryFormat::Contiguous:
    case c10::MemoryFormat::NumOptions:
      break;
  }
  return contiguous_strides(shape);
}

}  // namespace tessera::detail
