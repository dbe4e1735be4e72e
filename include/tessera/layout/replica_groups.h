// Which ranks of a layout hold the same values: copies of a Replicate dim, and
// terms of a Partial one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/export.h>
#include <tessera/layout/layout.h>

namespace tessera {

/// Returns the ranks in groups that hold copies of one shard, XLA's
/// replica_groups: the ranks of a group differ in Replicate mesh dims only.
/// Groups follow the row-major order of the other mesh dims, ranks inside a
/// group that of the Replicate ones. Without Replicate every rank is a group.
/// Example: [8] R S(0) @ mesh(2, 2) -> {{0, 2}, {1, 3}}.
TESSERA_API std::vector<std::vector<int64_t>> replica_groups(
    const Layout& layout);

/// Returns the size of a replica group: the product of the Replicate mesh dims.
/// Example: [8] S(0) R @ mesh(2, 4) -> 4.
TESSERA_API int64_t replica_count(const Layout& layout);
/// Returns how many ranks' values are reduced to one: the product of the
/// Partial mesh dims, 1 without them. Example: [8] P(sum) R @ mesh(2, 4) -> 2.
TESSERA_API int64_t partial_count(const Layout& layout);

/// Prints ascending ranks, runs of three or more shortened and long lists
/// abbreviated: "5", "0,1", "0-3", "0,4,8,12", "0,4,...,60 (16)"; "none".
TESSERA_API std::string ranks_to_string(const std::vector<int64_t>& ranks);

}  // namespace tessera
