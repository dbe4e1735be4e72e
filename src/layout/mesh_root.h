// The array of ranks that meshes are views of, and the arithmetic of one mesh
// dim over its positions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tessera/layout/mesh_shape.h>

namespace tessera::detail::inline layout_layer {

/// Ranks by position. The array 0 .. count-1 is not stored.
struct MeshRoot {
  int64_t count = 1;
  std::vector<int64_t> ranks;                        // empty: 0 .. count-1
  std::vector<std::pair<int64_t, int64_t>> inverse;  // (rank, position), sorted

  bool is_identity() const { return ranks.empty(); }
  int64_t rank_at(int64_t position) const {
    return is_identity() ? position : ranks[static_cast<size_t>(position)];
  }
  std::optional<int64_t> position_of(int64_t rank) const;
  bool same_ranks(const MeshRoot& other) const {
    return count == other.count && ranks == other.ranks;
  }
};

/// Returns the number of coordinates of a mesh dim.
int64_t size_of(const MeshDim& dim);
/// Returns how far coordinate `x` lies from coordinate 0 in the root.
int64_t offset_of(const MeshDim& dim, int64_t x);
/// Appends a level inside the others, merged where it continues the last:
/// (2, 4) then (4, 1) is (8, 1).
void append_level(MeshDim& dim, const Strided& level);

/// Reads an offset from the first position as one digit per mesh dim, the
/// reverse of adding offset_of(dims[d], x[d]); nothing when the offset is not
/// such a sum.
std::optional<std::vector<int64_t>> digits_of(
    const std::vector<MeshDim>& dims, int64_t offset);
/// Tells whether different digits give different offsets and digits_of reads
/// them back: sorted by stride, every level reaches less far than the next.
bool is_mixed_radix(const std::vector<MeshDim>& dims);

/// Checks names: none, or one per dim, all different and of the notation.
void check_names(
    const char* call, const std::vector<std::string>& names, int64_t ndim);

}  // namespace tessera::detail::inline layout_layer
