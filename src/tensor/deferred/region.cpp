#include <tensor/deferred/region.h>

#include <algorithm>

#include <tensor/state/strides.h>

namespace tessera::detail::inline tensor_layer {

namespace {

// The dims with more than one element, the largest strides first.
std::vector<size_t> dims_by_stride(const Geometry& tensor) {
  std::vector<size_t> dims;
  for (size_t d = 0; d < tensor.sizes.size(); ++d) {
    if (tensor.sizes[d] != 1) {
      dims.push_back(d);
    }
  }
  std::sort(dims.begin(), dims.end(), [&](size_t a, size_t b) {
    return tensor.strides[a] > tensor.strides[b];
  });
  return dims;
}

bool is_comparable(const Geometry& slice, const Geometry& tensor) {
  return slice.dtype == tensor.dtype && !slice.is_conjugated &&
         !slice.is_negated && !tensor.is_conjugated && !tensor.is_negated &&
         slice.numel() > 0 && slice.offset >= tensor.offset &&
         is_dense(tensor.sizes, tensor.strides);
}

}  // namespace

std::optional<SlicedRegion> find_region(
    const Geometry& slice, const Geometry& tensor) {
  if (!is_comparable(slice, tensor)) {
    return std::nullopt;
  }
  SlicedRegion region;
  region.box.offsets.assign(tensor.sizes.size(), 0);
  region.box.sizes.assign(tensor.sizes.size(), 1);
  int64_t offset = slice.offset - tensor.offset;
  const std::vector<size_t> dims = dims_by_stride(tensor);
  for (const size_t d : dims) {
    region.box.offsets[d] = offset / tensor.strides[d];
    offset %= tensor.strides[d];
  }
  std::vector<bool> taken(tensor.sizes.size());
  for (size_t s = 0; s < slice.sizes.size(); ++s) {
    if (slice.sizes[s] == 1) {
      region.dims.push_back(-1);
      continue;
    }
    const auto d = std::find_if(dims.begin(), dims.end(), [&](size_t dim) {
      return tensor.strides[dim] == slice.strides[s] && !taken[dim];
    });
    if (d == dims.end() ||
        region.box.offsets[*d] + slice.sizes[s] > tensor.sizes[*d]) {
      return std::nullopt;
    }
    taken[*d] = true;
    region.box.sizes[*d] = slice.sizes[s];
    region.dims.push_back(static_cast<int64_t>(*d));
  }
  const bool fits =
      offset == 0 && intersect(region.box, whole(tensor.sizes)) == region.box;
  return fits ? std::optional(std::move(region)) : std::nullopt;
}

}  // namespace tessera::detail::inline tensor_layer
