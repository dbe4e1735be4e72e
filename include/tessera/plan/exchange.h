// The direct exchange: every rank receives exactly the boxes of its target
// shard, each from one rank that holds it. Serves one mesh, two meshes, other
// mesh shapes and other sets of ranks alike.
//
// Of several copies of an element, a rank in the source mesh takes the one at
// its own coordinate of the mesh dims that do not cut (so what it holds itself
// stays where it is). A rank outside counts: the k-th rank of the target mesh
// takes copy k, the last replicated mesh dim varying fastest.
//
// Explicit tilings have one copy of each element. Tiles that share elements are
// found by sorting, so the work grows with the pairs that meet.
#pragma once

#include <cstdint>
#include <vector>

#include <tessera/export.h>
#include <tessera/layout/box_layout.h>
#include <tessera/layout/layout.h>

namespace tessera {

/// A box that goes from one rank to another, or stays when both are equal.
struct Transfer {
  int64_t from;
  int64_t to;
  Box box;
  friend bool operator==(const Transfer&, const Transfer&) = default;
};

/// Returns the transfers that `rank` sends or receives: by receiving rank, then
/// by the sender's coordinate, then by the boxes of the target shard and of the
/// source shard in storage order. Both sides of a pair see the same order.
/// Partials of the source must be partials of the target, on the same mesh.
TESSERA_API std::vector<Transfer> exchange_transfers(
    const Layout& source, const Layout& target, int64_t rank);

/// Returns the elements that the busiest rank sends or receives, whichever is
/// more; what stays on its rank is not counted.
TESSERA_API int64_t
exchange_elements(const Layout& source, const Layout& target);
/// Returns the elements that `rank` sends or receives, whichever is more; 0 for
/// a rank in neither mesh. The largest over ranks is exchange_elements().
TESSERA_API int64_t
exchange_elements_on(const Layout& source, const Layout& target, int64_t rank);

/// Returns the transfers that `rank` sends or receives between two tilings of
/// one shape: by receiving rank, then by sending rank, then in the order of the
/// target tiles and of the source tiles. Both sides of a pair see the same
/// order. A rank without tiles has none.
TESSERA_API std::vector<Transfer> exchange_transfers(
    const BoxLayout& source, const BoxLayout& target, int64_t rank);
/// The same counts between two tilings.
TESSERA_API int64_t
exchange_elements(const BoxLayout& source, const BoxLayout& target);
TESSERA_API int64_t exchange_elements_on(
    const BoxLayout& source, const BoxLayout& target, int64_t rank);
/// Tells whether no element changes its rank. Stops at the first that does.
TESSERA_API bool stays_in_place(
    const BoxLayout& source, const BoxLayout& target);

}  // namespace tessera
