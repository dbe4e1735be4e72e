// The shape of a mesh of ranks: which rank sits at which coordinate, with no
// process, device or communicator attached.
//
// A mesh is a view of a root array of ranks. Each mesh dim is a list of
// (size, stride) pairs over positions in that array, as in a strided tensor, so
// slicing, flattening, unflattening and joining cost O(mesh dims), whatever the
// number of ranks. Coordinates are row-major: the last dim varies fastest.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tessera/export.h>

namespace tessera {

namespace detail::inline layout_layer {
struct MeshRoot;  // the array of ranks and its inverse

struct Strided {  // `size` positions, `stride` apart
  int64_t size;
  int64_t stride;
  friend bool operator==(const Strided&, const Strided&) = default;
};
/// Outermost first, neighbours that continue each other merged; empty means
/// size 1.
using MeshDim = std::vector<Strided>;
}  // namespace detail::inline layout_layer

/// An n-d arrangement of global ranks, by value.
class TESSERA_API MeshShape {
 public:
  /// Makes the 0-d mesh of rank 0 alone.
  MeshShape();
  /// Arranges ranks 0 .. product(sizes)-1 row-major.
  /// Example: MeshShape({2, 4}, {"dp", "tp"}).
  explicit MeshShape(
      std::vector<int64_t> sizes, std::vector<std::string> names = {});
  /// Arranges the given ranks row-major; ranks must be distinct and not
  /// negative.
  static MeshShape from_ranks(
      std::vector<int64_t> ranks, std::vector<int64_t> sizes,
      std::vector<std::string> names = {});

  int64_t ndim() const { return static_cast<int64_t>(dims_.size()); }
  /// Returns the number of ranks.
  int64_t size() const;
  int64_t size(int64_t dim) const;
  std::vector<int64_t> sizes() const;
  /// Returns the names, or nothing when the dims have none.
  const std::vector<std::string>& names() const { return names_; }
  /// Returns the dim called `name`; an unknown name is an error that lists the
  /// known ones.
  int64_t dim_of(const std::string& name) const;

  /// Returns the rank at a coordinate.
  int64_t rank_at(const std::vector<int64_t>& coordinate) const;
  /// Returns where a rank sits, or nothing when it is not in the mesh.
  std::optional<std::vector<int64_t>> coordinate_of(int64_t rank) const;
  /// Returns all ranks, row-major; O(ranks).
  std::vector<int64_t> ranks() const;
  /// Returns the ranks that differ from `rank` in mesh dim `dim` only, in the
  /// order of that dim.
  std::vector<int64_t> ranks_along(int64_t dim, int64_t rank) const;
  /// Returns the largest rank; O(mesh dims) when the root is 0 .. n-1.
  int64_t max_rank() const;

  /// Keeps some dims, ascending: the slice that holds `member`, a rank of this
  /// mesh.
  MeshShape slice(const std::vector<int64_t>& dims, int64_t member) const;
  /// Merges neighbouring dims `first` .. `last` into one called `name`.
  MeshShape flatten(int64_t first, int64_t last, std::string name = "") const;
  /// Splits one dim into several; the product of `sizes` must be its size.
  MeshShape unflatten(
      int64_t dim, const std::vector<int64_t>& sizes,
      const std::vector<std::string>& names = {}) const;
  /// Joins the dims of several views of one root; they must not overlap.
  static MeshShape concatenate(const std::vector<MeshShape>& meshes);
  /// Tells whether both are views of one root array of ranks.
  bool same_root(const MeshShape& other) const;

  /// Tells whether names are equal and every coordinate has the same rank,
  /// whatever the roots.
  friend TESSERA_API bool operator==(const MeshShape& a, const MeshShape& b);
  size_t hash() const;

 private:
  int64_t position_of(const std::vector<int64_t>& coordinate) const;

  std::shared_ptr<const detail::MeshRoot> root_;
  int64_t base_ = 0;  // position of coordinate 0, 0, ...
  std::vector<detail::MeshDim> dims_;
  std::vector<std::string> names_;
};

/// Prints "mesh(dp=2, tp=4)", or "mesh(2, 4)" without names; a mesh whose ranks
/// are not 0 .. n-1 in order also says which: "mesh(tp=2; ranks 1 3)".
TESSERA_API std::string to_string(const MeshShape& mesh);
TESSERA_API std::ostream& operator<<(std::ostream& out, const MeshShape& mesh);

}  // namespace tessera
