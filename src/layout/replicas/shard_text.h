// The different shards of a layout by number, and texts about one of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/layout/layout.h>

namespace tessera::detail::inline layout_layer {

using Coordinate = std::vector<int64_t>;

/// Returns the mesh dims whose placement `is_kind` accepts, ascending.
/// Example: mesh_dims_where(layout, &Placement::is_replicate).
std::vector<int64_t> mesh_dims_where(
    const Layout& layout, bool (Placement::*is_kind)() const);
/// Returns the mesh dims that shard a tensor dim, ascending.
std::vector<int64_t> sharding_dims(const Layout& layout);

/// Returns the product of the sizes of mesh dims; 1 for none.
int64_t size_over(const MeshShape& mesh, const std::vector<int64_t>& dims);
/// Writes position `index`, row-major over `dims`, into the coordinate.
void set_position(
    const MeshShape& mesh, const std::vector<int64_t>& dims, int64_t index,
    Coordinate& coordinate);

/// Returns the number of different shards: the product of the sharding dims.
int64_t shard_count(const Layout& layout);
/// Returns the lowest coordinate of shard `index`, row-major over the sharding
/// dims.
Coordinate shard_coordinate(const Layout& layout, int64_t index);
/// Returns the shard's number; the inverse of shard_coordinate.
int64_t shard_index(const Layout& layout, const Coordinate& coordinate);

/// Prints "dp=1 tp=3", or "(1, 3)" without names; dims that are `any` print as
/// "*".
std::string coordinate_text(
    const MeshShape& mesh, const Coordinate& coordinate,
    const std::vector<bool>& any = {});

/// Returns "sum", "max", ... when all Partial dims reduce alike, else
/// "partial"; nothing without Partial.
std::string reduction_name(const Layout& layout);

/// Prints the ranks that hold the shard at a coordinate: copies "0-3", terms
/// of a Partial "sum(0,1)", copies of sums "sum(0,1) = sum(2,3)". Long lists
/// are abbreviated.
std::string replicas_text(const Layout& layout, const Coordinate& coordinate);

}  // namespace tessera::detail::inline layout_layer
