#include "layout/replicas/shard_text.h"

#include <algorithm>

#include <tessera/layout/replica_groups.h>

namespace tessera::detail::inline layout_layer {
namespace {

constexpr int64_t kMostListed = 4096;  // ranks that are looked at one by one
constexpr int64_t kMostReplicas = 3;

std::string abbreviated(
    int64_t first, int64_t second, int64_t last, int64_t total) {
  return std::to_string(first) + "," + std::to_string(second) + ",...," +
         std::to_string(last) + " (" + std::to_string(total) + ")";
}

/// Prints the ranks met while `dims` vary from the given coordinate.
std::string ranks_over(
    const MeshShape& mesh, const std::vector<int64_t>& dims,
    Coordinate coordinate) {
  const int64_t total = size_over(mesh, dims);
  const auto rank = [&](int64_t index) {
    set_position(mesh, dims, index, coordinate);
    return mesh.rank_at(coordinate);
  };
  if (total > kMostListed) {
    return abbreviated(rank(0), rank(1), rank(total - 1), total);
  }
  std::vector<int64_t> ranks;
  for (int64_t i = 0; i < total; ++i) {
    ranks.push_back(rank(i));
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks_to_string(ranks);
}

}  // namespace

std::vector<int64_t> mesh_dims_where(
    const Layout& layout, bool (Placement::*is_kind)() const) {
  std::vector<int64_t> dims;
  for (size_t i = 0; i < layout.placements().size(); ++i) {
    if ((layout.placements()[i].*is_kind)()) {
      dims.push_back(static_cast<int64_t>(i));
    }
  }
  return dims;
}

std::vector<int64_t> sharding_dims(const Layout& layout) {
  return mesh_dims_where(layout, &Placement::is_shard);
}

int64_t size_over(const MeshShape& mesh, const std::vector<int64_t>& dims) {
  int64_t product = 1;
  for (const int64_t dim : dims) {
    product *= mesh.size(dim);
  }
  return product;
}

void set_position(
    const MeshShape& mesh, const std::vector<int64_t>& dims, int64_t index,
    Coordinate& coordinate) {
  for (auto dim = dims.rbegin(); dim != dims.rend(); ++dim) {
    coordinate[static_cast<size_t>(*dim)] = index % mesh.size(*dim);
    index /= mesh.size(*dim);
  }
}

int64_t shard_count(const Layout& layout) {
  return size_over(layout.mesh(), sharding_dims(layout));
}

Coordinate shard_coordinate(const Layout& layout, int64_t index) {
  Coordinate coordinate(static_cast<size_t>(layout.mesh().ndim()), 0);
  set_position(layout.mesh(), sharding_dims(layout), index, coordinate);
  return coordinate;
}

int64_t shard_index(const Layout& layout, const Coordinate& coordinate) {
  int64_t index = 0;
  for (const int64_t dim : sharding_dims(layout)) {
    index =
        index * layout.mesh().size(dim) + coordinate[static_cast<size_t>(dim)];
  }
  return index;
}

std::string coordinate_text(
    const MeshShape& mesh, const Coordinate& coordinate,
    const std::vector<bool>& any) {
  const bool named = !mesh.names().empty();
  std::string text = named ? "" : "(";
  for (size_t i = 0; i < coordinate.size(); ++i) {
    text += i == 0 ? "" : (named ? " " : ", ");
    text += named ? mesh.names()[i] + "=" : "";
    text += i < any.size() && any[i] ? "*" : std::to_string(coordinate[i]);
  }
  return named ? text : text + ")";
}

std::string reduction_name(const Layout& layout) {
  std::string name;
  for (const Placement& placement : layout.placements()) {
    if (placement.is_partial()) {
      const std::string op = to_string(placement.reduce_op());
      name = name.empty() || name == op ? op : "partial";
    }
  }
  return name;
}

std::string replicas_text(const Layout& layout, const Coordinate& coordinate) {
  const MeshShape& mesh = layout.mesh();
  const auto replicated = mesh_dims_where(layout, &Placement::is_replicate);
  const auto partial = mesh_dims_where(layout, &Placement::is_partial);
  if (partial.empty()) {
    return ranks_over(mesh, replicated, coordinate);
  }
  const std::string name = reduction_name(layout);
  const int64_t total = size_over(mesh, replicated);
  std::string text;
  Coordinate at = coordinate;
  for (int64_t i = 0; i < total; ++i) {
    if (i == kMostReplicas) {
      return text + " = ... (" + std::to_string(total) + " copies)";
    }
    set_position(mesh, replicated, i, at);
    text += (i == 0 ? "" : " = ") + name + "(" + ranks_over(mesh, partial, at) +
            ")";
  }
  return text;
}

}  // namespace tessera::detail::inline layout_layer
