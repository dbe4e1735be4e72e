#include <tessera/layout/replica_groups.h>

#include "layout/replicas/shard_text.h"

namespace tessera {
namespace {

std::vector<int64_t> replicated_dims(const Layout& layout) {
  return detail::mesh_dims_where(layout, &Placement::is_replicate);
}

}  // namespace

std::vector<std::vector<int64_t>> replica_groups(const Layout& layout) {
  const MeshShape& mesh = layout.mesh();
  std::vector<int64_t> replicated, others;
  for (int64_t dim = 0; dim < mesh.ndim(); ++dim) {
    const bool copies =
        layout.placements()[static_cast<size_t>(dim)].is_replicate();
    (copies ? replicated : others).push_back(dim);
  }
  const int64_t count = detail::size_over(mesh, others);
  const int64_t size = detail::size_over(mesh, replicated);
  std::vector<std::vector<int64_t>> groups(static_cast<size_t>(count));
  detail::Coordinate at(static_cast<size_t>(mesh.ndim()), 0);
  for (int64_t i = 0; i < count; ++i) {
    detail::set_position(mesh, others, i, at);
    for (int64_t k = 0; k < size; ++k) {
      detail::set_position(mesh, replicated, k, at);
      groups[static_cast<size_t>(i)].push_back(mesh.rank_at(at));
    }
  }
  return groups;
}

int64_t replica_count(const Layout& layout) {
  return detail::size_over(layout.mesh(), replicated_dims(layout));
}

int64_t partial_count(const Layout& layout) {
  return detail::size_over(
      layout.mesh(), detail::mesh_dims_where(layout, &Placement::is_partial));
}

std::string ranks_to_string(const std::vector<int64_t>& ranks) {
  if (ranks.empty()) {
    return "none";
  }
  std::vector<std::string> parts;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) {
      ++end;
    }
    if (end - i >= 3) {
      parts.push_back(
          std::to_string(ranks[i]) + "-" + std::to_string(ranks[end - 1]));
    } else {
      for (size_t k = i; k < end; ++k) {
        parts.push_back(std::to_string(ranks[k]));
      }
    }
    i = end;
  }
  if (parts.size() > 4) {
    return parts[0] + "," + parts[1] + ",...," + parts.back() + " (" +
           std::to_string(ranks.size()) + ")";
  }
  std::string text = parts[0];
  for (size_t i = 1; i < parts.size(); ++i) {
    text += "," + parts[i];
  }
  return text;
}

}  // namespace tessera
