// The coordinates of ranks that talk to each other along some mesh dims.
#pragma once

#include <cstdint>
#include <vector>

#include <tessera/layout/mesh_shape.h>

namespace tessera::detail::inline tensor_layer {

/// Returns the coordinates of the ranks that differ from `coordinate` in the
/// mesh dims `over` only, row-major, as DeviceMesh::communicator_over() orders
/// them.
inline std::vector<std::vector<int64_t>> group_coordinates(
    const MeshShape& mesh, const std::vector<int64_t>& over,
    const std::vector<int64_t>& coordinate) {
  std::vector<std::vector<int64_t>> all{coordinate};
  for (const int64_t m : over) {
    std::vector<std::vector<int64_t>> next;
    for (const std::vector<int64_t>& at : all) {
      for (int64_t c = 0; c < mesh.size(m); ++c) {
        next.push_back(at);
        next.back()[static_cast<size_t>(m)] = c;
      }
    }
    all = std::move(next);
  }
  return all;
}

}  // namespace tessera::detail::inline tensor_layer
