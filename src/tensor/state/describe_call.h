// How errors of calls on a mesh begin.
#pragma once

#include <string>

#include <tessera/comm/device_mesh.h>

namespace tessera::detail::inline tensor_layer {

/// Prints "from_local on mesh(tp=4), rank 2".
inline std::string describe_call(const char* call, const DeviceMesh& mesh) {
  return std::string(call) + " on " + to_string(mesh) + ", rank " +
         std::to_string(mesh.world().rank());
}

}  // namespace tessera::detail::inline tensor_layer
