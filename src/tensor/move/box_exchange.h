// Moves tensors between explicit tilings: gather, scatter and reshard of any
// tiling to any other are this one exchange.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>
#include <tessera/comm/communicator.h>
#include <tessera/layout/box_layout.h>

namespace tessera::detail::inline tensor_layer {

/// Returns one contiguous tensor per tile that this rank has in `target`, in
/// tile order and on the tile's device, filled from what all ranks of `group`
/// hold. `held` has one tensor per tile of this rank in `source`, in tile order
/// and with any strides. Tiles name global ranks of the group.
///
/// Collective, also for ranks without tiles: one all_to_all, recorded as an
/// "exchange". What stays on a rank does not travel. Equal tiles give `held`
/// itself, and where no element changes its rank nothing is communicated.
///
/// Data travels on the one device type of all tiles, else through the CPU. A
/// tile without a device is on the CPU when that is decided, and receives where
/// data travels.
std::vector<at::Tensor> exchange_boxes(
    const std::vector<at::Tensor>& held, const BoxLayout& source,
    const BoxLayout& target, at::ScalarType dtype, const Communicator& group);

}  // namespace tessera::detail::inline tensor_layer
