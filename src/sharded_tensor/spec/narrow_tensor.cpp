#include <algorithm>

#include <c10/util/Exception.h>
#include <tessera/layout/notation.h>
#include <tessera/sharded_tensor/sharding_spec.h>

#include "sharded_tensor/spec/shard_checks.h"

namespace tessera::sharded_tensor {

at::Tensor narrow_tensor(
    const at::Tensor& tensor, const ShardMetadata& metadata) {
  format::check_shard(metadata);
  const std::vector<int64_t> sizes = tensor.sizes().vec();
  TORCH_CHECK_VALUE(
      metadata.shard_sizes.size() == sizes.size(),
      "narrow_tensor: a shard has as many dims as its tensor; got ",
      to_string(metadata), " of ", shape_to_string(sizes));
  at::Tensor part = tensor;
  for (size_t d = 0; d < sizes.size(); ++d) {
    const int64_t size = metadata.shard_sizes[d];
    const int64_t offset = size == 0
                               ? std::min(metadata.shard_offsets[d], sizes[d])
                               : metadata.shard_offsets[d];
    TORCH_CHECK_VALUE(
        offset + size <= sizes[d],
        "narrow_tensor: a shard lies inside its "
        "tensor; ",
        to_string(metadata), " leaves ", shape_to_string(sizes), " along dim ",
        d);
    if (size != sizes[d]) {
      part = part.narrow(static_cast<int64_t>(d), offset, size);
    }
  }
  return part;
}

}  // namespace tessera::sharded_tensor
