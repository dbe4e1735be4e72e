// Placements of whole values.
#pragma once

#include <cstddef>

#include <tessera/comm/device_mesh.h>
#include <tessera/layout/placement.h>

namespace tessera::detail::inline tensor_layer {

/// Returns all Replicate.
inline Placements replicated(const DeviceMesh& mesh) {
  return Placements(static_cast<size_t>(mesh.ndim()), Replicate());
}

}  // namespace tessera::detail::inline tensor_layer
