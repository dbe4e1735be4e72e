// Where each element of a sharded tensor lives: global shape + mesh shape +
// placements. The answers follow from the definition of the placements; every
// other layer asks here and computes no index arithmetic of its own.
//
// Words: rank (global), coordinate (per mesh dim), run (half-open range of
// indices of one tensor dim), box (a run per dim). A shard holds one run per
// tensor dim, several where a dim is strided.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include <tessera/export.h>
#include <tessera/layout/box.h>
#include <tessera/layout/mesh_shape.h>
#include <tessera/layout/placement.h>

namespace tessera {

namespace detail::inline layout_layer {
class Cut;

/// Layout::Run: the indices begin .. end-1 of one tensor dim.
struct Run {
  int64_t begin;
  int64_t end;
  int64_t length() const { return end - begin; }
  friend bool operator==(const Run&, const Run&) = default;
};
/// Layout::Runs: ascending or not, in the order in which a shard stores them.
using Runs = std::vector<Run>;
}  // namespace detail::inline layout_layer

/// Returns what part `coordinate` of `parts` receives when a dim of `length`
/// indices is cut as `placement` says, as runs of 0 .. length-1. Empty parts
/// have no run. Replicate and Partial keep everything.
/// Example: cut_runs(Shard(0), 10, 4, 3) -> {9:10}.
TESSERA_API detail::Runs cut_runs(
    const Placement& placement, int64_t length, int64_t parts,
    int64_t coordinate);

/// Returns the total length of runs.
TESSERA_API int64_t total_length(const detail::Runs& runs);

/// A global shape laid out on a mesh. The constructor checks everything, so a
/// Layout that exists is a valid one.
class TESSERA_API Layout {
 public:
  using Run = detail::Run;
  using Runs = detail::Runs;

  /// Checks and normalises: one placement per mesh dim, tensor dims in range
  /// (negative ones count from the end), orders complete, ragged lengths that
  /// add up, no mix of partial kinds but sum with avg.
  Layout(std::vector<int64_t> shape, MeshShape mesh, Placements placements);

  const std::vector<int64_t>& shape() const { return shape_; }
  const MeshShape& mesh() const { return mesh_; }
  /// Returns the normalised placements: dims not negative, orders only where
  /// they differ from mesh order.
  const Placements& placements() const { return placements_; }
  /// Returns the mesh dims that cut a tensor dim, in order of application.
  const std::vector<int64_t>& cuts(int64_t tensor_dim) const {
    return cuts_[static_cast<size_t>(tensor_dim)];
  }
  bool has_partial() const;
  bool is_replicated() const;
  /// Tells whether all coordinates hold equally much of every tensor dim.
  bool is_even() const;

  /// Returns the indices of one tensor dim held at a coordinate, in storage
  /// order, neighbours merged.
  Runs runs(int64_t tensor_dim, const std::vector<int64_t>& coordinate) const;
  /// Returns the shape of the shard at a coordinate.
  std::vector<int64_t> local_shape(
      const std::vector<int64_t>& coordinate) const;
  /// Returns the shard's box; a strided shard that is no single box is an
  /// error that names boxes(). An empty dim has the offset of the dim's end.
  Box box(const std::vector<int64_t>& coordinate) const;
  /// Returns the shard's boxes in storage order (row-major over runs); none
  /// when the shard is empty.
  std::vector<Box> boxes(const std::vector<int64_t>& coordinate) const;

  /// Returns, per mesh dim, the coordinate that holds an element, or -1 where
  /// every coordinate does (Replicate, Partial).
  std::vector<int64_t> owner(const std::vector<int64_t>& index) const;
  /// Returns the ranks that hold an element, ascending.
  std::vector<int64_t> owner_ranks(const std::vector<int64_t>& index) const;
  /// Returns where in its owner's shard an element is stored.
  std::vector<int64_t> local_index(const std::vector<int64_t>& index) const;
  /// Returns the ranks whose shard shares an element with `box`, ascending.
  std::vector<int64_t> ranks_holding(const Box& box) const;

  friend TESSERA_API bool operator==(const Layout& a, const Layout& b);
  size_t hash() const;

 private:
  detail::Cut cut(int64_t mesh_dim) const;
  void check_coordinate(
      const char* call, const std::vector<int64_t>& coordinate) const;
  void check_index(const char* call, const std::vector<int64_t>& index) const;

  std::vector<int64_t> shape_;
  MeshShape mesh_;
  Placements placements_;
  std::vector<std::vector<int64_t>> cuts_;  // per tensor dim
};

/// Returns the shape of the shard at a coordinate; see Layout::local_shape.
/// Example: local_shape({10}, MeshShape({4}), {Shard(0)}, {3}) -> {1}.
TESSERA_API std::vector<int64_t> local_shape(
    const std::vector<int64_t>& shape, const MeshShape& mesh,
    const Placements& placements, const std::vector<int64_t>& coordinate);
/// Returns the box of the shard at a coordinate; see Layout::box.
TESSERA_API Box local_box(
    const std::vector<int64_t>& shape, const MeshShape& mesh,
    const Placements& placements, const std::vector<int64_t>& coordinate);

/// Prints "[8, 16] S(0) R @ mesh(dp=2, tp=4)".
TESSERA_API std::string to_string(const Layout& layout);
TESSERA_API std::ostream& operator<<(std::ostream& out, const Layout& layout);

}  // namespace tessera
