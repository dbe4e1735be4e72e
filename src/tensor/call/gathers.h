// Gathers: what makes whole what was cut, whatever form the rule has.
//
// A tensor lies in as many *parts* as the sizes of the mesh dims that cut it
// multiply to. A move is a *gather* where a tensor of more than one element
// lies in fewer parts after it than before: ranks hold copies of what they
// shared. explain(), gather_counts(), StrictMode and the harness of
// tests/conformance all ask here.
//
// Worked row, f32[4, 6] on mesh(dp=2, tp=2):
//   S(0) S(1) -> S(0) R      4 parts -> 2: a gather
//   S(0) S(1) -> R R         4 parts -> 1: a gather
//   S(0) S(1) -> S(1) S(0)   4 parts -> 4: another cut
//   S(0) R -> R S(0)         2 parts -> 2: another cut
//   P(sum) S(0) -> R S(0)    2 parts -> 2: a reduction
//   R R -> S(0) R            1 part -> 2: a slice
// A cut that leaves ranks empty is a cut: f32[1, 6] S(0) -> R is a gather,
// since ranks that held nothing hold everything. A tensor of one element, or of
// none, is never gathered.
#pragma once

#include <cstdint>

#include <tensor/impl/sharded_impl.h>

namespace tessera::detail::inline tensor_layer {

/// Tells whether a tensor of the shape and on the mesh of `like` is gathered
/// when it goes from some placements to others.
bool is_gather(
    const DTensorSpec& like, const Placements& from, const Placements& to);

/// Returns the bytes that this rank holds more of when a tensor goes to other
/// placements; 0 outside the mesh.
int64_t gained_bytes(const DTensorSpec& source, const Placements& target);

}  // namespace tessera::detail::inline tensor_layer
