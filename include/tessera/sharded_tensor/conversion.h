// Between the two doors of the house: ShardedTensor and at::Tensor with
// placements.
#pragma once

#include <ATen/core/Tensor.h>
#include <tessera/export.h>
#include <tessera/sharded_tensor/sharded_tensor.h>

namespace tessera::sharded_tensor {

/// Returns the tensor as an at::Tensor with placements, sharing its memory;
/// gradients reach the shards. Throws where no mesh has these shards.
TESSERA_API at::Tensor to_dtensor(const ShardedTensor& tensor);
/// Tells whether to_dtensor() works.
TESSERA_API bool has_mesh(const ShardedTensor& tensor);
/// Returns an at::Tensor with placements as a ShardedTensor, sharing its
/// memory. A replicated box belongs to its lowest coordinate; a Partial tensor
/// is an error. No communication on the CPU; else devices are exchanged.
TESSERA_API ShardedTensor
from_dtensor(const at::Tensor& tensor, const ProcessGroup& group = {});

}  // namespace tessera::sharded_tensor
