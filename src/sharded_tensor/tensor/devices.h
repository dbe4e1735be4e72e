// Which device each rank of a group means.
#pragma once

#include <cstdint>
#include <map>

#include <c10/core/Device.h>
#include <tessera/sharded_tensor/process_group.h>

namespace tessera::detail::inline sharded_tensor_layer {

/// Returns every rank's device of one kind, given this rank's. The CPU has no
/// index and nothing is communicated; else collective.
std::map<int64_t, c10::Device> devices_of_ranks(
    c10::Device mine, const sharded_tensor::ProcessGroup& group,
    const char* call);

/// Returns the current device of a kind where the index is left out.
c10::Device with_index(c10::Device device);

}  // namespace tessera::detail::inline sharded_tensor_layer
