// The sharding texts of XLA and Shardy, from a layout and back, for programs
// that hand tensors to a compiler which places them by itself.
//
//   layout  [8, 16] S(1) S(0) @ mesh(x=2, y=4)
//   HLO     {devices=[4,2]<=[2,4]T(1,0)}
//   Shardy  sdy.mesh @mesh = <["x"=2, "y"=4]>
//           #sdy.sharding<@mesh, [{"y"}, {"x"}]>
//
// What has no counterpart there is an error: ragged cuts, shards of several
// boxes, P(avg), P(product), a dim that several mesh dims cut unevenly (they
// cut again and again, XLA cuts once by the product), and ranks other than
// 0 .. n-1, since XLA numbers the devices of a program.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/export.h>
#include <tessera/layout/layout.h>

namespace tessera {

/// Prints the HloSharding of a layout in its shortest form: tile counts per
/// tensor dim, then the numbers of partial values and of copies.
/// Example: [8, 16] S(0) R @ mesh(2, 4) ->
/// {devices=[2,1,4]<=[8] last_tile_dim_replicate}.
TESSERA_API std::string to_hlo_sharding(const Layout& layout);

/// Prints the mesh and the sharding of a layout in two lines of Shardy. Mesh
/// dims without names are called _axis_0, _axis_1, ...
TESSERA_API std::string to_shardy(const Layout& layout);

/// Reads the HloSharding of a tensor on a mesh. A mesh dim of size 1 comes back
/// as R, since the text says nothing about it. Strided cuts come back as
/// orders: SS(0,2) S(0) on mesh(2, 2) as S(0)[1] S(0)[0], which holds the same.
TESSERA_API Layout from_hlo_sharding(
    std::string_view text, std::vector<int64_t> shape, const MeshShape& mesh);
/// Reads an HloSharding that lists its devices; the mesh is the one that the
/// text speaks of: {devices=[2,4]<=[8]} is S(0) S(1) on mesh(2, 4).
TESSERA_API Layout
from_hlo_sharding(std::string_view text, std::vector<int64_t> shape);

/// Reads both lines that to_shardy() prints.
TESSERA_API Layout
from_shardy(std::string_view text, std::vector<int64_t> shape);
/// Reads a #sdy.sharding<...> alone; its axes are the names of `mesh`.
TESSERA_API Layout from_shardy(
    std::string_view text, std::vector<int64_t> shape, const MeshShape& mesh);

}  // namespace tessera
