#include <tessera/layout/mesh_shape.h>

#include <algorithm>
#include <ostream>

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include "base/hash.h"
#include "base/text.h"
#include "layout/arithmetic.h"
#include "layout/mesh_root.h"

namespace tessera {

namespace detail::inline layout_layer {

std::optional<int64_t> MeshRoot::position_of(int64_t rank) const {
  if (is_identity()) {
    return rank >= 0 && rank < count ? std::optional(rank) : std::nullopt;
  }
  const auto found = std::lower_bound(
      inverse.begin(), inverse.end(), std::pair<int64_t, int64_t>(rank, 0));
  if (found == inverse.end() || found->first != rank) {
    return std::nullopt;
  }
  return found->second;
}

void check_names(
    const char* call, const std::vector<std::string>& names, int64_t ndim) {
  TORCH_CHECK_VALUE(
      names.empty() || static_cast<int64_t>(names.size()) == ndim, call,
      ": give one name per mesh dim or none; got ", names.size(), " names for ",
      ndim, " dims");
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  const auto other = [](char c) {
    return (c >= '0' && c <= '9') || c == '.' || c == '-';
  };
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string& name = names[i];
    TORCH_CHECK_VALUE(
        !name.empty() && letter(name[0]) &&
            std::all_of(
                name.begin(), name.end(),
                [&](char c) { return letter(c) || other(c); }),
        call,
        ": a mesh dim's name begins with a letter or _ and goes on with "
        "letters, digits, '_', '.', '-'; got \"",
        name, "\" for dim ", i);
    const auto first = std::find(names.begin(), names.end(), name);
    TORCH_CHECK_VALUE(
        first == names.begin() + static_cast<std::ptrdiff_t>(i), call,
        ": names of mesh dims must differ; got \"", name, "\" for dims ",
        first - names.begin(), " and ", i);
  }
}

}  // namespace detail::inline layout_layer

namespace {

using detail::MeshDim;
using detail::MeshRoot;

int64_t checked_mesh_size(const char* call, const std::vector<int64_t>& sizes) {
  for (size_t d = 0; d < sizes.size(); ++d) {
    TORCH_CHECK_VALUE(
        sizes[d] >= 1, call, ": a mesh dim has at least 1 rank; got ", sizes[d],
        " for dim ", d, " of sizes [", base::join(sizes, ", "), "]");
  }
  const auto product = detail::checked_product(sizes);
  TORCH_CHECK_VALUE(
      product.has_value(), call,
      ": the number of ranks exceeds 64 bits; sizes [", base::join(sizes, ", "),
      "]");
  return *product;
}

std::vector<MeshDim> row_major(const std::vector<int64_t>& sizes) {
  std::vector<MeshDim> dims(sizes.size());
  int64_t stride = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    detail::append_level(dims[d], {sizes[d], stride});
    stride *= sizes[d];
  }
  return dims;
}

std::shared_ptr<const MeshRoot> make_root(std::vector<int64_t> ranks) {
  auto root = std::make_shared<MeshRoot>();
  root->count = static_cast<int64_t>(ranks.size());
  bool identity = true;
  for (int64_t i = 0; i < root->count; ++i) {
    const int64_t rank = ranks[static_cast<size_t>(i)];
    TORCH_CHECK_VALUE(
        rank >= 0, "MeshShape::from_ranks: ranks must not be negative; got ",
        rank, " at position ", i);
    identity = identity && rank == i;
    root->inverse.emplace_back(rank, i);
  }
  std::sort(root->inverse.begin(), root->inverse.end());
  for (size_t i = 1; i < root->inverse.size(); ++i) {
    const auto& [rank, position] = root->inverse[i];
    TORCH_CHECK_VALUE(
        root->inverse[i - 1].first != rank,
        "MeshShape::from_ranks: a rank may occur once only; got rank ", rank,
        " at positions ", root->inverse[i - 1].second, " and ", position);
  }
  if (identity) {
    root->inverse.clear();
  } else {
    root->ranks = std::move(ranks);
  }
  return root;
}

}  // namespace

MeshShape::MeshShape() : root_(std::make_shared<MeshRoot>()) {}

MeshShape::MeshShape(std::vector<int64_t> sizes, std::vector<std::string> names)
    : names_(std::move(names)) {
  auto root = std::make_shared<MeshRoot>();
  root->count = checked_mesh_size("MeshShape", sizes);
  root_ = std::move(root);
  dims_ = row_major(sizes);
  detail::check_names("MeshShape", names_, ndim());
}

MeshShape MeshShape::from_ranks(
    std::vector<int64_t> ranks, std::vector<int64_t> sizes,
    std::vector<std::string> names) {
  const int64_t count = checked_mesh_size("MeshShape::from_ranks", sizes);
  TORCH_CHECK_VALUE(
      count == static_cast<int64_t>(ranks.size()),
      "MeshShape::from_ranks: sizes [", base::join(sizes, ", "), "] hold ",
      count, " ranks; got ", ranks.size());
  detail::check_names(
      "MeshShape::from_ranks", names, static_cast<int64_t>(sizes.size()));
  MeshShape mesh;
  mesh.root_ = make_root(std::move(ranks));
  mesh.dims_ = row_major(sizes);
  mesh.names_ = std::move(names);
  return mesh;
}

int64_t MeshShape::size() const {
  int64_t size = 1;
  for (const MeshDim& dim : dims_) {
    size *= detail::size_of(dim);
  }
  return size;
}

int64_t MeshShape::size(int64_t dim) const {
  TORCH_CHECK_INDEX(
      dim >= 0 && dim < ndim(), "MeshShape::size: ", to_string(*this), " has ",
      ndim(), " dims; got dim ", dim);
  return detail::size_of(dims_[static_cast<size_t>(dim)]);
}

std::vector<int64_t> MeshShape::sizes() const {
  std::vector<int64_t> sizes;
  sizes.reserve(dims_.size());
  for (const MeshDim& dim : dims_) {
    sizes.push_back(detail::size_of(dim));
  }
  return sizes;
}

int64_t MeshShape::dim_of(const std::string& name) const {
  const auto found = std::find(names_.begin(), names_.end(), name);
  TORCH_CHECK_VALUE(
      found != names_.end(), "MeshShape::dim_of: ", to_string(*this),
      " has no dim called \"", name, "\"; ",
      names_.empty() ? "its dims have no names"
                     : c10::str("known names: ", base::join(names_, ", ")));
  return found - names_.begin();
}

int64_t MeshShape::position_of(const std::vector<int64_t>& coordinate) const {
  int64_t position = base_;
  for (size_t d = 0; d < dims_.size(); ++d) {
    position += detail::offset_of(dims_[d], coordinate[d]);
  }
  return position;
}

int64_t MeshShape::rank_at(const std::vector<int64_t>& coordinate) const {
  TORCH_CHECK_INDEX(
      coordinate.size() == dims_.size(),
      "MeshShape::rank_at: ", to_string(*this), " takes ", ndim(),
      " numbers; got coordinate [", base::join(coordinate, ", "), "]");
  for (size_t d = 0; d < dims_.size(); ++d) {
    TORCH_CHECK_INDEX(
        coordinate[d] >= 0 && coordinate[d] < detail::size_of(dims_[d]),
        "MeshShape::rank_at: coordinate [", base::join(coordinate, ", "),
        "] is outside ", to_string(*this), " in dim ", d);
  }
  return root_->rank_at(position_of(coordinate));
}

std::optional<std::vector<int64_t>> MeshShape::coordinate_of(
    int64_t rank) const {
  const auto position = root_->position_of(rank);
  if (!position) {
    return std::nullopt;
  }
  return detail::digits_of(dims_, *position - base_);
}

std::vector<int64_t> MeshShape::ranks() const {
  std::vector<int64_t> result;
  const std::vector<int64_t> limits = sizes();
  std::vector<int64_t> coordinate(dims_.size(), 0);
  do {
    result.push_back(root_->rank_at(position_of(coordinate)));
  } while (detail::next_row_major(coordinate, limits));
  return result;
}

std::vector<int64_t> MeshShape::ranks_along(int64_t dim, int64_t rank) const {
  const int64_t count = size(dim);
  auto coordinate = coordinate_of(rank);
  TORCH_CHECK_VALUE(
      coordinate.has_value(), "MeshShape::ranks_along: rank ", rank,
      " is not in ", to_string(*this));
  std::vector<int64_t> result;
  for (int64_t x = 0; x < count; ++x) {
    (*coordinate)[static_cast<size_t>(dim)] = x;
    result.push_back(root_->rank_at(position_of(*coordinate)));
  }
  return result;
}

int64_t MeshShape::max_rank() const {
  if (!root_->is_identity()) {
    const std::vector<int64_t> all = ranks();
    return *std::max_element(all.begin(), all.end());
  }
  std::vector<int64_t> last = sizes();
  for (int64_t& x : last) {
    --x;
  }
  return position_of(last);
}

bool MeshShape::same_root(const MeshShape& other) const {
  return root_ == other.root_ || root_->same_ranks(*other.root_);
}

// Equal means: equal names, and the same rank at every coordinate. Views of one
// root differ as soon as their levels do, so only views of different explicit
// arrays need to be compared rank by rank.
bool operator==(const MeshShape& a, const MeshShape& b) {
  if (a.names_ != b.names_ || a.sizes() != b.sizes()) {
    return false;
  }
  const bool both_identity = a.root_->is_identity() && b.root_->is_identity();
  if (both_identity || a.same_root(b)) {
    return a.base_ == b.base_ && a.dims_ == b.dims_;
  }
  return a.ranks() == b.ranks();
}

// Mixes the first rank and the last one along every dim: O(mesh dims squared),
// and the same for equal meshes whatever their roots.
size_t MeshShape::hash() const {
  size_t seed = base::hash_combine(0, sizes());
  seed = base::hash_combine(seed, names_);
  std::vector<int64_t> coordinate(dims_.size(), 0);
  const auto mix = [&] {
    seed = base::hash_combine(
        seed, static_cast<size_t>(root_->rank_at(position_of(coordinate))));
  };
  mix();
  for (size_t d = 0; d < dims_.size(); ++d) {
    coordinate[d] = detail::size_of(dims_[d]) - 1;
    mix();
    coordinate[d] = 0;
  }
  return seed;
}

std::string to_string(const MeshShape& mesh) {
  std::vector<std::string> dims;
  for (int64_t d = 0; d < mesh.ndim(); ++d) {
    const std::string size = std::to_string(mesh.size(d));
    dims.push_back(
        mesh.names().empty()
            ? size
            : mesh.names()[static_cast<size_t>(d)] + "=" + size);
  }
  std::string text = c10::str("mesh(", base::join(dims, ", "));
  if (mesh != MeshShape(mesh.sizes(), mesh.names())) {
    text += c10::str("; ranks ", base::join(mesh.ranks(), " "));
  }
  return text + ")";
}

std::ostream& operator<<(std::ostream& out, const MeshShape& mesh) {
  return out << to_string(mesh);
}

}  // namespace tessera
