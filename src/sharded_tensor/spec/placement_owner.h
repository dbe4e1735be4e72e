// Which rank a placement means.
#pragma once

#include <cstdint>
#include <string>

#include <tessera/sharded_tensor/remote_device.h>

namespace tessera::detail::inline sharded_tensor_layer {

/// Returns the global rank of a placement: its rank, or that of its worker's
/// name. Throws where it has neither, or the name is not known; `call` begins
/// the text.
int64_t owner_of(
    const sharded_tensor::RemoteDevice& placement, const std::string& call);

}  // namespace tessera::detail::inline sharded_tensor_layer
