// Which dim of a mesh a parallel form is about.
#pragma once

#include <algorithm>
#include <string>

#include <c10/util/Exception.h>
#include <tessera/comm/device_mesh.h>

namespace tessera::detail::inline parallel_layer {

/// Returns the dim of that name; where none is asked for, the one called
/// `usual`, or else `otherwise`.
inline int64_t find_mesh_dim(
    const char* call, const DeviceMesh& mesh, const std::string& asked,
    const std::string& usual, int64_t otherwise) {
  const auto& names = mesh.dim_names();
  const auto found =
      std::find(names.begin(), names.end(), asked.empty() ? usual : asked);
  TORCH_CHECK_VALUE(
      asked.empty() || found != names.end(), call, ": ", to_string(mesh),
      " has no dim \"", asked, "\"; name one of its dims");
  return found == names.end() ? otherwise : found - names.begin();
}

}  // namespace tessera::detail::inline parallel_layer
