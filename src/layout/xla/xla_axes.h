// What a layout and a sharding text of XLA have in common: which mesh dims cut
// each tensor dim, outermost first, which hold partial values, which hold
// copies.
//
// XLA cuts a dim of size n by k mesh dims once, into ceil(n / (product of their
// sizes)); the tile of a coordinate is its mixed-radix number over those mesh
// dims. A layout cuts again and again. Both are the same where n divides, and
// for a single cut.
//   n 5, mesh(2, 2): layout sizes 2 1 1 1, XLA sizes 2 2 1 0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/layout/layout.h>

namespace tessera::detail::inline layout_layer {

struct XlaAxes {
  std::vector<std::vector<int64_t>> dims;  // per tensor dim, outermost first
  std::vector<int64_t> unreduced;          // mesh dims, ascending
  std::vector<int64_t> replicated;         // mesh dims, ascending
  ReduceOp reduce_op = ReduceOp::kSum;     // of the unreduced ones
};

/// Returns the axes of a layout; one without counterpart in XLA is an error
/// that begins with `call`.
XlaAxes xla_axes(const char* call, const Layout& layout);

/// Returns the layout of some axes, and checks that xla_axes() accepts it.
Layout layout_of_axes(
    const char* call, std::vector<int64_t> shape, MeshShape mesh,
    const XlaAxes& axes);

/// Tells whether coordinates in row-major order have ranks 0, 1, 2, ...
bool is_iota(const MeshShape& mesh);

}  // namespace tessera::detail::inline layout_layer
