// HloSharding -> Layout without a mesh: the sizes after <= and the tile counts,
// cut at the products of both, are the mesh dims: [2,4]<=[8] -> mesh(2, 4).
#include <algorithm>

#include <c10/util/Exception.h>
#include <tessera/layout/notation.h>
#include <tessera/layout/xla.h>

#include "layout/xla/xla_axes.h"
#include "layout/xla/xla_hlo_text.h"

namespace tessera {
namespace {

using detail::HloText;
using detail::XlaAxes;

// A mesh dim that the text itself speaks of.
struct Piece {
  int64_t size;
  int64_t iota_dim;
  size_t tile;  // which of the tile counts
};

// Cuts the transposed sizes and the tile counts at the products of both:
// sizes 8 with tiles 2 4 -> 2 4; sizes 2 3 with tiles 6 -> 2 3.
std::vector<Piece> pieces_of(const HloText& hlo) {
  std::vector<Piece> pieces;
  size_t tile = 0;
  int64_t left = 1;  // of the tile count before `tile`
  for (const int64_t dim : hlo.iota_order) {
    int64_t size = hlo.iota_sizes[static_cast<size_t>(dim)];
    while (size > 1) {
      while (left == 1) {
        left = hlo.tiles[tile++];
      }
      const int64_t piece = std::min(size, left);
      TORCH_CHECK_VALUE(
          size % piece == 0 && left % piece == 0, detail::kFromHloSharding,
          ": the sizes ", shape_to_string(hlo.iota_sizes),
          " and the tile counts ", shape_to_string(hlo.tiles),
          " have no common factors, so no mesh dims; neither of ", size,
          " and ", left, " divides the other");
      pieces.push_back({piece, dim, tile - 1});
      size /= piece;
      left /= piece;
    }
  }
  return pieces;
}

// Numbers the pieces as mesh dims: by size after <=, then outermost first.
Layout layout_of_pieces(
    const HloText& hlo, std::vector<int64_t> shape,
    const std::vector<Piece>& pieces) {
  std::vector<size_t> by_dim(pieces.size());
  for (size_t i = 0; i < by_dim.size(); ++i) {
    by_dim[i] = i;
  }
  std::stable_sort(by_dim.begin(), by_dim.end(), [&](size_t a, size_t b) {
    return pieces[a].iota_dim < pieces[b].iota_dim;
  });
  XlaAxes axes;
  axes.reduce_op = hlo.reduce_op;
  axes.dims.resize(shape.size());
  std::vector<int64_t> sizes, mesh_dim(pieces.size());
  for (const size_t i : by_dim) {
    mesh_dim[i] = static_cast<int64_t>(sizes.size());
    sizes.push_back(pieces[i].size);
  }
  for (size_t i = 0; i < pieces.size(); ++i) {
    const size_t tile = pieces[i].tile;
    if (tile < shape.size()) {
      axes.dims[tile].push_back(mesh_dim[i]);
    } else if (hlo.groups[tile - shape.size()] == HloText::Group::kUnreduced) {
      axes.unreduced.push_back(mesh_dim[i]);
    }
  }
  MeshShape mesh(sizes.empty() ? std::vector<int64_t>{1} : sizes);
  if (!hlo.devices.empty()) {
    mesh = MeshShape::from_ranks(hlo.devices, mesh.sizes());
  }
  return detail::layout_of_axes(
      detail::kFromHloSharding, std::move(shape), std::move(mesh), axes);
}

// Listed devices have one mesh dim per tile count, in this order.
HloText with_iota_of_tiles(HloText hlo) {
  hlo.iota_sizes = hlo.tiles;
  hlo.iota_order.clear();
  for (size_t i = 0; i < hlo.tiles.size(); ++i) {
    hlo.iota_order.push_back(static_cast<int64_t>(i));
  }
  return hlo;
}

}  // namespace

Layout from_hlo_sharding(std::string_view text, std::vector<int64_t> shape) {
  HloText hlo =
      detail::parse_hlo_text(text, static_cast<int64_t>(shape.size()));
  if (hlo.kind == HloText::Kind::kMaximal) {
    return detail::layout_of_axes(
        detail::kFromHloSharding, std::move(shape),
        MeshShape::from_ranks({hlo.device}, {}), {});
  }
  TORCH_CHECK_VALUE(
      hlo.kind == HloText::Kind::kTiled, detail::kFromHloSharding,
      ": replicated and unreduced do not tell on how many devices; give the "
      "mesh as third argument");
  if (!hlo.devices.empty()) {
    hlo = with_iota_of_tiles(std::move(hlo));
  }
  const std::vector<Piece> pieces = pieces_of(hlo);
  return layout_of_pieces(hlo, std::move(shape), pieces);
}

}  // namespace tessera
