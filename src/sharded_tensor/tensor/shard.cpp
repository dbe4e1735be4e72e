#include <tessera/sharded_tensor/shard.h>

#include <base/text.h>
#include <c10/util/Exception.h>
#include <tessera/comm/world.h>

namespace tessera::sharded_tensor {

Shard::Shard(at::Tensor data, ShardMetadata about)
    : tensor(std::move(data)), metadata(std::move(about)) {
  TORCH_CHECK_VALUE(
      tensor.defined(), "Shard, rank ", rank(), ": the tensor of ",
      to_string(metadata), " is undefined");
  TORCH_CHECK_VALUE(
      tensor.sizes() == metadata.shard_sizes, "Shard, rank ", rank(),
      ": the tensor must have the sizes of its metadata; got [",
      base::join(tensor.sizes(), ", "), "] for ", to_string(metadata));
  TORCH_CHECK_VALUE(
      !metadata.placement || metadata.placement->device() == tensor.device(),
      "Shard, rank ", rank(),
      ": the tensor must be on the device of its placement; got ",
      tensor.device(), " for ", to_string(metadata));
}

Shard Shard::from_tensor_and_offsets(
    const at::Tensor& tensor, std::vector<int64_t> offsets, int64_t rank) {
  return Shard(
      tensor, ShardMetadata(
                  std::move(offsets), tensor.sizes().vec(),
                  RemoteDevice(rank, tensor.device())));
}

}  // namespace tessera::sharded_tensor
