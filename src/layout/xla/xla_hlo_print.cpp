// Layout -> HloSharding.
//
// The mesh dims in the order of the tiles they make, those of tensor dim 0
// first, then partial values, then copies, are a transposition of iota:
//   [8, 16] S(1) S(0) @ mesh(2, 4): order 1, 0 -> devices=[4,2]<=[2,4]T(1,0)
#include <algorithm>

#include <c10/util/StringUtil.h>
#include <tessera/layout/xla.h>

#include "base/text.h"
#include "layout/arithmetic.h"
#include "layout/xla/xla_axes.h"
#include "layout/xla/xla_hlo_text.h"

namespace tessera {
namespace {

using detail::XlaAxes;

int64_t count_of(const MeshShape& mesh, const std::vector<int64_t>& dims) {
  int64_t count = 1;
  for (const int64_t m : dims) {
    count *= mesh.size(m);
  }
  return count;
}

// Mesh dims of one rank say nothing and are left out.
std::vector<int64_t> tile_order(const MeshShape& mesh, const XlaAxes& axes) {
  std::vector<int64_t> order;
  const auto append = [&](const std::vector<int64_t>& dims) {
    std::copy_if(
        dims.begin(), dims.end(), std::back_inserter(order),
        [&](int64_t m) { return mesh.size(m) > 1; });
  };
  for (const auto& dims : axes.dims) {
    append(dims);
  }
  append(axes.unreduced);
  append(axes.replicated);
  return order;
}

// Mesh dims that are neighbours in the mesh and among the tiles become one, so
// <=[2,2,3]T(2,0,1) is <=[4,3]T(1,0).
std::string iota_text(
    const MeshShape& mesh, const std::vector<int64_t>& order) {
  std::vector<int64_t> kept = order;
  std::sort(kept.begin(), kept.end());
  const auto follows = [&](int64_t before, int64_t after) {
    const auto at = std::find(kept.begin(), kept.end(), before);
    return at + 1 != kept.end() && *(at + 1) == after;
  };
  struct Group {
    int64_t first;
    int64_t size;
  };
  std::vector<Group> groups;
  for (size_t i = 0; i < order.size(); ++i) {
    const int64_t size = mesh.size(order[i]);
    if (i > 0 && follows(order[i - 1], order[i])) {
      groups.back().size *= size;
    } else {
      groups.push_back({order[i], size});
    }
  }
  std::vector<Group> sorted = groups;
  std::sort(sorted.begin(), sorted.end(), [](const Group& a, const Group& b) {
    return a.first < b.first;
  });
  std::vector<int64_t> sizes, positions;
  for (size_t i = 0; i < groups.size(); ++i) {
    sizes.push_back(sorted[i].size);
    const auto found = std::find_if(
        sorted.begin(), sorted.end(),
        [&](const Group& g) { return g.first == groups[i].first; });
    positions.push_back(found - sorted.begin());
  }
  const std::string text = c10::str("<=[", base::join(sizes, ","), "]");
  return groups.size() < 2
             ? text
             : c10::str(text, "T(", base::join(positions, ","), ")");
}

// Copies are listed in ascending order, as XLA does; all ascending is iota.
std::string list_text(
    const MeshShape& mesh, const std::vector<int64_t>& order, int64_t copies) {
  std::vector<int64_t> limits, devices;
  for (const int64_t m : order) {
    limits.push_back(mesh.size(m));
  }
  std::vector<int64_t> digits(order.size(), 0);
  std::vector<int64_t> coordinate(static_cast<size_t>(mesh.ndim()), 0);
  do {
    for (size_t i = 0; i < order.size(); ++i) {
      coordinate[static_cast<size_t>(order[i])] = digits[i];
    }
    devices.push_back(mesh.rank_at(coordinate));
  } while (detail::next_row_major(digits, limits));
  for (auto at = devices.begin(); at != devices.end(); at += copies) {
    std::sort(at, at + copies);
  }
  return std::is_sorted(devices.begin(), devices.end())
             ? c10::str("<=[", devices.size(), "]")
             : base::join(devices, ",");
}

std::string reduction_text(ReduceOp op) {
  return op == ReduceOp::kSum
             ? ""
             : c10::str(
                   " metadata={op_type=\"", detail::kHloReduction,
                   "\" op_name=\"", op == ReduceOp::kMax ? "MAX" : "MIN",
                   "\"}");
}

std::string groups_text(int64_t partials, int64_t copies) {
  if (partials == 1) {
    return copies == 1 ? "" : " last_tile_dim_replicate";
  }
  return copies == 1 ? " last_tile_dims={unreduced}"
                     : " last_tile_dims={unreduced, replicated}";
}

}  // namespace

std::string to_hlo_sharding(const Layout& layout) {
  const MeshShape& mesh = layout.mesh();
  const XlaAxes axes = detail::xla_axes("to_hlo_sharding", layout);
  if (mesh.ndim() == 0) {
    return c10::str("{maximal device=", mesh.rank_at({}), "}");
  }
  std::vector<int64_t> tiles;
  for (const auto& dims : axes.dims) {
    tiles.push_back(count_of(mesh, dims));
  }
  const int64_t partials = count_of(mesh, axes.unreduced);
  const int64_t copies = count_of(mesh, axes.replicated);
  const std::string reduction =
      partials > 1 ? reduction_text(axes.reduce_op) : "";
  if (partials * copies == mesh.size() && (partials == 1 || copies == 1)) {
    return partials == 1 ? "{replicated}" : "{unreduced" + reduction + "}";
  }
  for (const int64_t count : {partials, copies}) {
    if (count > 1) {
      tiles.push_back(count);
    }
  }
  const std::vector<int64_t> order = tile_order(mesh, axes);
  return c10::str(
      "{devices=[", base::join(tiles, ","), "]",
      detail::is_iota(mesh) ? iota_text(mesh, order)
                            : list_text(mesh, order, copies),
      groups_text(partials, copies), reduction, "}");
}

}  // namespace tessera
