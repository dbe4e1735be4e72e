// What the parts of the view family share: the layout of a view, filled step by
// step.
#pragma once

#include <tessera/layout/layout.h>
#include <tessera/rules/rule_table.h>

namespace tessera::detail::inline rules_layer {

/// The number of an operand's dim that goes over into no dim of the result.
constexpr int64_t kNoDim = -1;

/// Returns row-major strides; a dim of size 0 counts as 1, as in ATen.
std::vector<int64_t> row_major_strides(c10::IntArrayRef shape);

/// Tells whether a call is the _copy variant of a view, whose results are
/// contiguous.
bool is_copy(const RuleCall& call);

/// The operand of a view on a mesh, and the layout that becomes of it.
class ViewMaker {
 public:
  ViewMaker(const RuleCall& call, const MeshShape& mesh);

  const RuleCall& call() const { return call_; }
  const MeshShape& mesh() const { return mesh_; }
  const Operand& operand() const { return call_.self(); }
  int64_t ndim() const { return operand().ndim(); }
  int64_t size(int64_t dim) const {
    return operand().shape[static_cast<size_t>(dim)];
  }
  int64_t stride(int64_t dim) const {
    return operand().strides[static_cast<size_t>(dim)];
  }
  std::vector<int64_t> shape() const { return operand().shape.vec(); }
  std::vector<int64_t> strides() const { return operand().strides.vec(); }

  /// Returns the operand's placements with everything that was dropped
  /// replicated; dims count from the front.
  const Placements& placements() const { return placements_; }
  /// Returns the mesh dims that cut a dim and were not dropped, in order of
  /// application.
  std::vector<int64_t> cuts(int64_t dim) const;
  bool is_sharded(int64_t dim) const { return !cuts(dim).empty(); }
  /// Tells whether anything is cut.
  bool has_shards() const;
  /// Returns the operand's layout with everything that was dropped replicated.
  Layout layout() const;

  /// Says that the operand must be replicated on a mesh dim.
  void drop(int64_t mesh_dim);
  /// Says that no mesh dim may cut a dim.
  void drop_shards(int64_t dim);
  /// Says that Partial stays for these reduce ops only.
  void keep_partial(const std::vector<ReduceOp>& ops);

  /// Returns the placements of a result where dim d of the operand becomes dim
  /// to[d]; drops the cuts of dims that become none.
  Placements mapped(const std::vector<int64_t>& to);
  /// Adds a result, `offset` elements into the operand's memory.
  void add(
      std::vector<int64_t> shape, std::vector<int64_t> strides,
      Placements placements, int64_t offset = 0);
  /// Says how a rank shows its part.
  void run_by(detail::RunBy kernel) { layout_.local = kernel; }
  /// Gives the local call another argument.
  void local_argument(std::string_view name, c10::IValue value);
  /// Gives the local call the shape of the first result's shard.
  void local_shape_argument(
      std::string_view name, const std::vector<int64_t>* coordinate);

  ViewLayout take() { return std::move(layout_); }

 private:
  const RuleCall& call_;
  const MeshShape& mesh_;
  Placements placements_;
  std::vector<std::vector<int64_t>> cuts_;  // per dim, in order of application
  ViewLayout layout_;
};

// The views.
ViewLayout reshape_view(
    const RuleCall& call, const MeshShape& mesh,
    const std::vector<int64_t>* coordinate);
ViewLayout slice_view(
    const RuleCall& call, const MeshShape& mesh,
    const std::vector<int64_t>* coordinate);
ViewLayout split_view(
    const RuleCall& call, const MeshShape& mesh,
    const std::vector<int64_t>* coordinate);

/// Returns the strides that a view of a tensor with another shape has, or
/// nothing where its memory does not allow one.
/// Example: [4, 6] with strides [6, 1] as [2, 2, 6] -> [12, 6, 1].
std::optional<std::vector<int64_t>> view_strides(
    c10::IntArrayRef shape, c10::IntArrayRef strides,
    const std::vector<int64_t>& to);

}  // namespace tessera::detail::inline rules_layer
