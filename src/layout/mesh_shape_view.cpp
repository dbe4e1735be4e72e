// Views of a mesh: slices, merged and split dims, joins. All of it is
// arithmetic on (size, stride) levels.
#include <algorithm>
#include <numeric>

#include <c10/util/Exception.h>

#include "base/text.h"
#include "layout/arithmetic.h"
#include "layout/mesh_root.h"

namespace tessera {

namespace detail::inline layout_layer {

int64_t size_of(const MeshDim& dim) {
  int64_t size = 1;
  for (const Strided& level : dim) {
    size *= level.size;
  }
  return size;
}

int64_t offset_of(const MeshDim& dim, int64_t x) {
  int64_t offset = 0;
  for (size_t k = dim.size(); k-- > 0;) {
    offset += x % dim[k].size * dim[k].stride;
    x /= dim[k].size;
  }
  return offset;
}

void append_level(MeshDim& dim, const Strided& level) {
  if (level.size == 1) {
    return;
  }
  if (!dim.empty() && dim.back().stride == level.size * level.stride) {
    dim.back().size *= level.size;
    dim.back().stride = level.stride;
  } else {
    dim.push_back(level);
  }
}

namespace {

struct LevelOfDim {
  Strided level;
  size_t dim;
  int64_t weight;  // what one step of this level adds to the dim's coordinate
};

// All levels, the largest stride first.
std::vector<LevelOfDim> levels_of(const std::vector<MeshDim>& dims) {
  std::vector<LevelOfDim> levels;
  for (size_t d = 0; d < dims.size(); ++d) {
    int64_t weight = 1;
    for (size_t k = dims[d].size(); k-- > 0;) {
      levels.push_back({dims[d][k], d, weight});
      weight *= dims[d][k].size;
    }
  }
  std::stable_sort(
      levels.begin(), levels.end(), [](const auto& a, const auto& b) {
        return a.level.stride > b.level.stride;
      });
  return levels;
}

}  // namespace

std::optional<std::vector<int64_t>> digits_of(
    const std::vector<MeshDim>& dims, int64_t offset) {
  if (offset < 0) {
    return std::nullopt;
  }
  std::vector<int64_t> digits(dims.size(), 0);
  for (const auto& [level, dim, weight] : levels_of(dims)) {
    const int64_t digit = offset / level.stride;
    if (digit >= level.size) {
      return std::nullopt;
    }
    digits[dim] += digit * weight;
    offset %= level.stride;
  }
  return offset == 0 ? std::optional(digits) : std::nullopt;
}

bool is_mixed_radix(const std::vector<MeshDim>& dims) {
  const auto levels = levels_of(dims);
  for (size_t i = 1; i < levels.size(); ++i) {
    const Strided& inner = levels[i].level;
    if (levels[i - 1].level.stride < inner.size * inner.stride) {
      return false;
    }
  }
  return true;
}

}  // namespace detail::inline layout_layer

using detail::MeshDim;
using detail::Strided;

MeshShape MeshShape::slice(
    const std::vector<int64_t>& dims, int64_t member) const {
  const auto coordinate = coordinate_of(member);
  TORCH_CHECK_VALUE(
      coordinate.has_value(), "MeshShape::slice: rank ", member, " is not in ",
      to_string(*this));
  MeshShape result;
  result.root_ = root_;
  std::vector<int64_t> first = *coordinate;
  for (size_t i = 0; i < dims.size(); ++i) {
    TORCH_CHECK_INDEX(
        dims[i] >= 0 && dims[i] < ndim(),
        "MeshShape::slice: ", to_string(*this), " has ", ndim(),
        " dims; got dim ", dims[i]);
    TORCH_CHECK_VALUE(
        i == 0 || dims[i - 1] < dims[i],
        "MeshShape::slice: dims must ascend, each named once; got [",
        base::join(dims, ", "), "] of ", to_string(*this));
    const auto d = static_cast<size_t>(dims[i]);
    first[d] = 0;
    result.dims_.push_back(dims_[d]);
    if (!names_.empty()) {
      result.names_.push_back(names_[d]);
    }
  }
  result.base_ = position_of(first);
  return result;
}

MeshShape MeshShape::flatten(
    int64_t first, int64_t last, std::string name) const {
  TORCH_CHECK_INDEX(
      first >= 0 && first <= last && last < ndim(),
      "MeshShape::flatten: ", to_string(*this), " has ", ndim(),
      " dims; first and last must be two of them, ascending; got ", first,
      " and ", last);
  MeshShape result = *this;
  const auto begin = static_cast<size_t>(first);
  const auto end = static_cast<size_t>(last) + 1;
  for (size_t d = begin + 1; d < end; ++d) {
    for (const Strided& level : dims_[d]) {
      detail::append_level(result.dims_[begin], level);
    }
  }
  const auto erase_rest = [&](auto& list) {
    list.erase(
        list.begin() + static_cast<std::ptrdiff_t>(begin) + 1,
        list.begin() + static_cast<std::ptrdiff_t>(end));
  };
  erase_rest(result.dims_);
  if (!names_.empty()) {
    if (name.empty()) {
      name = base::join(
          std::vector<std::string>(
              names_.begin() + first, names_.begin() + last + 1),
          "_");
    }
    erase_rest(result.names_);
    result.names_[begin] = std::move(name);
  } else if (!name.empty()) {
    result.names_ = {std::move(name)};
  }
  detail::check_names("MeshShape::flatten", result.names_, result.ndim());
  return result;
}

namespace {

// Takes the innermost `size` coordinates off a dim. Levels can only be divided
// evenly: of (2, 8) (3, 1), offsets 0 1 2 8 9 10, the innermost 2 are 0 1, 2 8,
// 9 10, which no stride describes.
std::optional<MeshDim> take_innermost(MeshDim& dim, int64_t size) {
  MeshDim taken;
  while (size > 1) {
    Strided& inner = dim.back();
    const int64_t common = std::gcd(inner.size, size);
    if (common != inner.size && common != size) {
      return std::nullopt;
    }
    taken.insert(taken.begin(), {common, inner.stride});
    size /= common;
    inner = {inner.size / common, inner.stride * common};
    if (inner.size == 1) {
      dim.pop_back();
    }
  }
  return taken;
}

}  // namespace

MeshShape MeshShape::unflatten(
    int64_t dim, const std::vector<int64_t>& sizes,
    const std::vector<std::string>& names) const {
  const int64_t full_size = size(dim);
  const bool positive = std::all_of(
      sizes.begin(), sizes.end(), [](int64_t size) { return size >= 1; });
  TORCH_CHECK_VALUE(
      positive && detail::checked_product(sizes) == full_size,
      "MeshShape::unflatten: the product of sizes [", base::join(sizes, ", "),
      "] must be the size of dim ", dim, " of ", to_string(*this), ", ",
      full_size);
  const auto at = static_cast<size_t>(dim);
  TORCH_CHECK_VALUE(
      names.size() == (names_.empty() && ndim() > 1 ? 0 : sizes.size()) ||
          (names_.empty() && names.empty()),
      "MeshShape::unflatten: give one name per new dim if the others have "
      "names, else none; got ",
      names.size(), " names for ", sizes.size(), " dims of ", to_string(*this));
  MeshDim rest = dims_[at];
  std::vector<MeshDim> parts(sizes.size());
  for (size_t i = sizes.size(); i-- > 0;) {
    auto part = take_innermost(rest, sizes[i]);
    TORCH_CHECK_VALUE(
        part.has_value(), "MeshShape::unflatten: dim ", dim, " of ",
        to_string(*this), " was merged from dims that sizes [",
        base::join(sizes, ", "),
        "] do not divide; use sizes along which it "
        "was merged");
    parts[i] = std::move(*part);
  }
  MeshShape result = *this;
  result.dims_.erase(result.dims_.begin() + dim);
  result.dims_.insert(result.dims_.begin() + dim, parts.begin(), parts.end());
  if (!names_.empty()) {
    result.names_.erase(result.names_.begin() + dim);
  }
  result.names_.insert(
      result.names_.begin() + (names_.empty() ? 0 : dim), names.begin(),
      names.end());
  detail::check_names("MeshShape::unflatten", result.names_, result.ndim());
  return result;
}

namespace {

// The farthest offset of a mesh's levels from its first position.
int64_t reach_of(const std::vector<MeshDim>& dims) {
  int64_t reach = 0;
  for (const MeshDim& dim : dims) {
    reach += detail::offset_of(dim, detail::size_of(dim) - 1);
  }
  return reach;
}

// Returns how far along `other` the member lies that both meshes share. It
// stands at base1 + x1 == base2 + x2, x being offsets along each, so
// reach1 + base1 - base2 == (reach1 - x1) + x2: a sum of one offset along each,
// which digits_of takes apart.
std::optional<int64_t> common_member(
    const std::vector<MeshDim>& joined, const std::vector<MeshDim>& first,
    int64_t base_difference) {
  const auto digits =
      detail::digits_of(joined, reach_of(first) + base_difference);
  if (!digits) {
    return std::nullopt;
  }
  int64_t along_other = 0;
  for (size_t d = first.size(); d < joined.size(); ++d) {
    along_other += detail::offset_of(joined[d], (*digits)[d]);
  }
  return along_other;
}

}  // namespace

MeshShape MeshShape::concatenate(const std::vector<MeshShape>& meshes) {
  TORCH_CHECK_VALUE(
      !meshes.empty(), "MeshShape::concatenate: got no mesh to join");
  MeshShape result = meshes[0];
  for (size_t i = 1; i < meshes.size(); ++i) {
    const MeshShape& mesh = meshes[i];
    const auto pair = [&] {
      return to_string(result) + " and " + to_string(mesh);
    };
    TORCH_CHECK_VALUE(
        result.same_root(mesh), "MeshShape::concatenate: ", pair(),
        " are not views of one root mesh; slice both from the same mesh");
    TORCH_CHECK_VALUE(
        result.names_.empty() == mesh.names_.empty() || result.ndim() == 0 ||
            mesh.ndim() == 0,
        "MeshShape::concatenate: ", pair(),
        " must both have names or both have none");
    std::vector<MeshDim> joined = result.dims_;
    joined.insert(joined.end(), mesh.dims_.begin(), mesh.dims_.end());
    TORCH_CHECK_VALUE(
        detail::is_mixed_radix(joined), "MeshShape::concatenate: ", pair(),
        " overlap: they have more than one rank in common; join slices of "
        "different dims");
    const auto member =
        common_member(joined, result.dims_, result.base_ - mesh.base_);
    TORCH_CHECK_VALUE(
        member.has_value(), "MeshShape::concatenate: ", pair(),
        " have no rank in common; slice both at the same member");
    result.base_ -= *member;
    result.dims_ = std::move(joined);
    result.names_.insert(
        result.names_.end(), mesh.names_.begin(), mesh.names_.end());
    TORCH_CHECK_VALUE(
        result.base_ >= 0 &&
            result.base_ + reach_of(result.dims_) < result.root_->count,
        "MeshShape::concatenate: ", pair(),
        " join to positions outside the root mesh; join slices of one mesh");
  }
  detail::check_names("MeshShape::concatenate", result.names_, result.ndim());
  return result;
}

}  // namespace tessera
