#include <tensor/deferred/write_region.h>

#include <algorithm>

#include <ATen/ops/empty.h>
#include <tensor/deferred/replay.h>

namespace tessera::detail::inline tensor_layer {

namespace {

// Returns the elements of a box that lie in the shard, with the dims of the
// slice.
at::Tensor part_of_shard(
    const at::Tensor& shard, const Box& mine, const Box& common,
    const SlicedRegion& slice) {
  int64_t offset = shard.storage_offset();
  for (size_t d = 0; d < mine.offsets.size(); ++d) {
    offset += (common.offsets[d] - mine.offsets[d]) *
              shard.stride(static_cast<int64_t>(d));
  }
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  for (const int64_t dim : slice.dims) {
    sizes.push_back(dim < 0 ? 1 : common.sizes[static_cast<size_t>(dim)]);
    strides.push_back(dim < 0 ? 1 : shard.stride(dim));
  }
  return shard.as_strided(sizes, strides, offset);
}

// Returns the elements of a box of a tensor that has the shape of the slice.
at::Tensor part_of_slice(
    at::Tensor t, const Box& common, const SlicedRegion& slice) {
  for (size_t s = 0; s < slice.dims.size(); ++s) {
    if (slice.dims[s] >= 0) {
      const auto d = static_cast<size_t>(slice.dims[s]);
      t = t.narrow(
          static_cast<int64_t>(s), common.offsets[d] - slice.box.offsets[d],
          common.sizes[d]);
    }
  }
  return t;
}

const RecordedArgument& written_by(const RecordedCall& call) {
  return *std::find_if(
      call.tensors.begin(), call.tensors.end(),
      [](const RecordedArgument& argument) { return argument.is_written; });
}

}  // namespace

void write_region(
    const RecordedCall& call, const SlicedRegion& slice,
    const at::Tensor& shard, const Box& mine) {
  const auto common = intersect(mine, slice.box);
  if (!common) {
    return;
  }
  const at::Tensor part = part_of_shard(shard, mine, *common, slice);
  const std::vector<int64_t>& sizes = written_by(call).geometry->sizes;
  if (is_draw(call)) {  // numbers know their places in the slice
    const at::Tensor drawn = at::empty(sizes, shard.options());
    run_recorded(call, [&](const RecordedArgument&, const at::Tensor&) {
      return drawn;
    });
    part.copy_(part_of_slice(drawn, *common, slice));
    return;
  }
  run_recorded(
      call, [&](const RecordedArgument& argument, const at::Tensor& plain) {
        if (argument.is_written) {
          return part;
        }
        const at::Tensor t = argument.version
                                 ? replay(argument.version, *argument.geometry)
                                 : plain;
        return !t.defined() || t.dim() == 0
                   ? t
                   : part_of_slice(t.expand(sizes), *common, slice);
      });
}

}  // namespace tessera::detail::inline tensor_layer
