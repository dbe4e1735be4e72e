#include "holders.h"

#include <algorithm>

namespace tessera::cli {
namespace {

constexpr int64_t kMostListed = 4096;  // ranks that are looked at one by one
constexpr size_t kMostCopies = 3;

template <typename Predicate>
std::vector<int64_t> dims_where(const Layout& layout, Predicate predicate) {
  std::vector<int64_t> dims;
  for (size_t i = 0; i < layout.placements().size(); ++i) {
    if (predicate(layout.placements()[i])) {
      dims.push_back(static_cast<int64_t>(i));
    }
  }
  return dims;
}

std::vector<int64_t> replicated_dims(const Layout& layout) {
  return dims_where(
      layout, [](const Placement& p) { return p.is_replicate(); });
}

std::vector<int64_t> partial_dims(const Layout& layout) {
  return dims_where(layout, [](const Placement& p) { return p.is_partial(); });
}

int64_t count(const MeshShape& mesh, const std::vector<int64_t>& dims) {
  int64_t product = 1;
  for (const int64_t dim : dims) {
    product *= mesh.size(dim);
  }
  return product;
}

/// Writes position `index`, row-major over `dims`, into the coordinate.
void set_position(
    const MeshShape& mesh, const std::vector<int64_t>& dims, int64_t index,
    Coordinate& coordinate) {
  for (auto dim = dims.rbegin(); dim != dims.rend(); ++dim) {
    coordinate[static_cast<size_t>(*dim)] = index % mesh.size(*dim);
    index /= mesh.size(*dim);
  }
}

std::string abbreviated(
    int64_t first, int64_t second, int64_t last, int64_t total) {
  return std::to_string(first) + "," + std::to_string(second) + ",...," +
         std::to_string(last) + " (" + std::to_string(total) + ")";
}

/// Prints the ranks met while `dims` vary from the given coordinate.
std::string ranks_over(
    const MeshShape& mesh, const std::vector<int64_t>& dims,
    Coordinate coordinate) {
  const int64_t total = count(mesh, dims);
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
  return ranks_text(ranks);
}

}  // namespace

std::string ranks_text(const std::vector<int64_t>& ascending) {
  if (ascending.empty()) {
    return "none";
  }
  std::vector<std::string> parts;
  for (size_t i = 0; i < ascending.size();) {
    size_t end = i + 1;
    while (end < ascending.size() && ascending[end] == ascending[end - 1] + 1) {
      ++end;
    }
    if (end - i >= 3) {
      parts.push_back(
          std::to_string(ascending[i]) + "-" +
          std::to_string(ascending[end - 1]));
    } else {
      for (size_t k = i; k < end; ++k) {
        parts.push_back(std::to_string(ascending[k]));
      }
    }
    i = end;
  }
  if (parts.size() > 4) {
    return parts[0] + "," + parts[1] + ",...," + parts.back() + " (" +
           std::to_string(ascending.size()) + ")";
  }
  std::string text = parts[0];
  for (size_t i = 1; i < parts.size(); ++i) {
    text += "," + parts[i];
  }
  return text;
}

std::string reduction_name(const Layout& layout) {
  std::string name;
  for (const int64_t dim : partial_dims(layout)) {
    const std::string op =
        to_string(layout.placements()[static_cast<size_t>(dim)].reduce_op());
    name = name.empty() || name == op ? op : "partial";
  }
  return name;
}

std::string holders_text(const Layout& layout, const Coordinate& coordinate) {
  const MeshShape& mesh = layout.mesh();
  const auto copies = replicated_dims(layout);
  const auto addends = partial_dims(layout);
  if (addends.empty()) {
    return ranks_over(mesh, copies, coordinate);
  }
  const std::string name = reduction_name(layout);
  const int64_t total = count(mesh, copies);
  std::string text;
  Coordinate at = coordinate;
  for (int64_t i = 0; i < total; ++i) {
    if (i == static_cast<int64_t>(kMostCopies)) {
      return text + " = ... (" + std::to_string(total) + " copies)";
    }
    set_position(mesh, copies, i, at);
    text += (i == 0 ? "" : " = ") + name + "(" + ranks_over(mesh, addends, at) +
            ")";
  }
  return text;
}

int64_t copy_count(const Layout& layout) {
  return count(layout.mesh(), replicated_dims(layout));
}

int64_t addend_count(const Layout& layout) {
  return count(layout.mesh(), partial_dims(layout));
}

std::vector<int64_t> cutting_dims(const Layout& layout) {
  return dims_where(layout, [](const Placement& p) { return p.is_shard(); });
}

int64_t shard_count(const Layout& layout) {
  return count(layout.mesh(), cutting_dims(layout));
}

Coordinate shard_coordinate(const Layout& layout, int64_t index) {
  Coordinate coordinate(static_cast<size_t>(layout.mesh().ndim()), 0);
  set_position(layout.mesh(), cutting_dims(layout), index, coordinate);
  return coordinate;
}

int64_t shard_index(const Layout& layout, const Coordinate& coordinate) {
  int64_t index = 0;
  for (const int64_t dim : cutting_dims(layout)) {
    index =
        index * layout.mesh().size(dim) + coordinate[static_cast<size_t>(dim)];
  }
  return index;
}

std::string coordinate_text(
    const MeshShape& mesh, const Coordinate& coordinate,
    const std::vector<bool>& free) {
  const bool named = !mesh.names().empty();
  std::string text = named ? "" : "(";
  for (size_t i = 0; i < coordinate.size(); ++i) {
    text += i == 0 ? "" : (named ? " " : ", ");
    text += named ? mesh.names()[i] + "=" : "";
    text += i < free.size() && free[i] ? "*" : std::to_string(coordinate[i]);
  }
  return named ? text : text + ")";
}

}  // namespace tessera::cli
