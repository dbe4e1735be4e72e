// Who holds a piece of a layout: the ranks that share a box, as copies
// (Replicate) and addends (Partial).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/layout/layout.h>

namespace tessera::cli {

using Coordinate = std::vector<int64_t>;

/// Prints ranks: "5", "0,1", "0-3", "0,4,8,12", "0,4,...,60 (16)".
std::string ranks_text(const std::vector<int64_t>& ascending);

/// Prints the ranks that hold the shard at a coordinate: copies "0-3", addends
/// "sum(0,1)", copies of sums "sum(0,1) = sum(2,3)". Long lists are
/// abbreviated.
std::string holders_text(const Layout& layout, const Coordinate& coordinate);

/// Returns "sum", "max", ... when all partial dims reduce alike, else
/// "partial"; nothing without Partial.
std::string reduction_name(const Layout& layout);

/// Returns the number of ranks that hold a full copy of what this one holds,
/// itself included, addends of one value counted once.
int64_t copy_count(const Layout& layout);
/// Returns the number of addends that make up each value; 1 without Partial.
int64_t addend_count(const Layout& layout);

/// Returns the mesh dims that cut a tensor dim, ascending.
std::vector<int64_t> cutting_dims(const Layout& layout);
/// Returns the number of different shards: the product of the cutting dims.
int64_t shard_count(const Layout& layout);
/// Returns the lowest coordinate of shard `index`, row-major over the cutting
/// dims.
Coordinate shard_coordinate(const Layout& layout, int64_t index);
/// Returns the shard's number; the inverse of shard_coordinate.
int64_t shard_index(const Layout& layout, const Coordinate& coordinate);

/// Prints "dp=1 tp=3", or "(1, 3)" without names; `free` dims print as "*".
std::string coordinate_text(
    const MeshShape& mesh, const Coordinate& coordinate,
    const std::vector<bool>& free = {});

}  // namespace tessera::cli
