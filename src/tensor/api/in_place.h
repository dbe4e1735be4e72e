// Plain tensors that become sharded ones in place; see make_dtensor_().
#pragma once

#include <functional>

#include <ATen/core/Tensor.h>
#include <tessera/comm/device_mesh.h>
#include <tessera/layout/placement.h>
#include <tessera/tensor/dtensor_spec.h>

namespace tessera::detail::inline tensor_layer {

/// Returns this rank's shard of a plain tensor, a tensor of its own memory.
using ShardFn =
    std::function<at::Tensor(const at::Tensor& value, const DTensorSpec& spec)>;

/// Throws where a tensor, or its gradient, cannot become one of this layout in
/// place. One that has the layout can.
void check_in_place(
    const char* call, const at::Tensor& tensor, const DeviceMesh& mesh,
    const Placements& placements);

/// Checks, then installs what `shard` returns, for the tensor and then for its
/// gradient. Nothing happens where the tensor has the layout already.
void convert_in_place(
    const char* call, const at::Tensor& tensor, const DeviceMesh& mesh,
    const Placements& placements, const ShardFn& shard);

}  // namespace tessera::detail::inline tensor_layer
