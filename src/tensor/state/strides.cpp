#include <tensor/state/strides.h>

#include <algorithm>
#include <numeric>

#include <ATen/ExpandUtils.h>
#include <c10/util/accumulate.h>

namespace tessera::detail::inline tensor_layer {

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

std::vector<int64_t> memory_order(
    c10::IntArrayRef shape, c10::IntArrayRef strides) {
  std::vector<int64_t> order(shape.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t x, int64_t y) {
    const auto a = static_cast<size_t>(x);
    const auto b = static_cast<size_t>(y);
    return strides[a] != strides[b] ? strides[a] > strides[b]
                                    : shape[a] > 1 && shape[b] <= 1;
  });
  return order;
}

std::vector<int64_t> dense_strides(
    c10::IntArrayRef shape, c10::IntArrayRef like_shape,
    c10::IntArrayRef like_strides) {
  const std::vector<int64_t> order = memory_order(like_shape, like_strides);
  std::vector<int64_t> strides(shape.size());
  int64_t next = 1;
  for (size_t i = order.size(); i-- > 0;) {
    const auto d = static_cast<size_t>(order[i]);
    strides[d] = next;
    next *= std::max<int64_t>(shape[d], 1);
  }
  return strides;
}

std::vector<int64_t> shard_strides(
    c10::IntArrayRef local, c10::IntArrayRef shape, c10::IntArrayRef strides) {
  return local == shape && is_dense(shape, strides)
             ? strides.vec()
             : dense_strides(local, shape, strides);
}

std::vector<int64_t> strides_of_unsharded(
    c10::IntArrayRef shape, c10::IntArrayRef local,
    c10::IntArrayRef local_strides) {
  const bool tells =
      shape.size() == local.size() &&
      local_strides != c10::IntArrayRef(contiguous_strides(local)) &&
      is_dense(local, local_strides) &&
      std::count(local_strides.begin(), local_strides.end(), 0) == 0;
  return tells ? shard_strides(shape, local, local_strides)
               : contiguous_strides(shape);
}

namespace {

// The stride of a dim of the shape that an operand broadcasts to; 0 where it
// repeats itself.
int64_t broadcast_stride(
    const StridedShape& operand, c10::IntArrayRef shape, size_t dim) {
  const size_t missing = shape.size() - operand.shape.size();
  if (dim < missing || (operand.shape[dim - missing] == 1 && shape[dim] != 1)) {
    return 0;
  }
  return operand.strides[dim - missing];
}

// Is `a` an outer dim of `b`? Positive for yes, 0 for either.
int compare_dims(
    c10::IntArrayRef shape, const std::vector<StridedShape>& operands, size_t a,
    size_t b) {
  for (const StridedShape& operand : operands) {
    const int64_t outer = broadcast_stride(operand, shape, a);
    const int64_t inner = broadcast_stride(operand, shape, b);
    if (outer == 0 || inner == 0) {
      continue;
    }
    if (outer != inner) {
      return outer > inner ? 1 : -1;
    }
    if (shape[a] > shape[b]) {
      return 1;
    }
  }
  return 0;
}

}  // namespace

std::vector<int64_t> elementwise_strides(
    c10::IntArrayRef shape, const std::vector<StridedShape>& operands) {
  // Innermost first. No total order, so dims are inserted one by one, each past
  // those that are surely outside of it, and stops at one that surely is not.
  std::vector<size_t> order(shape.size());
  std::iota(order.rbegin(), order.rend(), size_t{0});
  for (size_t i = 1; i < order.size(); ++i) {
    size_t at = i;
    for (size_t other = i; other-- > 0;) {
      const int compared =
          compare_dims(shape, operands, order[other], order[at]);
      if (compared > 0) {
        std::swap(order[other], order[at]);
        at = other;
      } else if (compared < 0) {
        break;
      }
    }
  }
  std::vector<int64_t> strides(shape.size());
  int64_t next = 1;
  for (const size_t d : order) {
    strides[d] = next;
    next *= std::max<int64_t>(shape[d], 1);
  }
  return strides;
}

bool is_dense(c10::IntArrayRef shape, c10::IntArrayRef strides) {
  if (c10::multiply_integers(shape) == 0) {
    return true;
  }
  const std::vector<size_t> order = dims_by_stride(strides);
  int64_t expected = 1;
  for (size_t d : order) {
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
      return is_dense(shape, like) ? like.vec()
                                   : at::infer_dense_strides(shape, like);
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

}  // namespace tessera::detail::inline tensor_layer
