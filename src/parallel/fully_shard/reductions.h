// Sums of gradients over the ranks that hold a module together.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <parallel/fully_shard/member_group.h>
#include <tensor/move/group_move.h>

namespace tessera::detail::inline parallel_layer {

/// The gradient of a member, or a part of it.
struct MemberGradient {
  size_t member = 0;
  at::Tensor local;  // this rank's
  SpecPtr spec;
};

/// A reduction on its way: a reduce_scatter, and where shards are copied an
/// all_reduce of what it gives.
class GroupReduction final : public PendingMove {
 public:
  explicit GroupReduction(std::shared_ptr<MovingGroup> scatter)
      : scatter_(std::move(scatter)) {}

  /// Adds `kept` to the scattered sums, then reduces them once more, into
  /// `results`. An undefined addend adds nothing.
  void reduce_again(
      std::shared_ptr<const GroupPlan> plan, std::vector<at::Tensor> kept,
      std::vector<at::Tensor> results);

  /// Begins the second half, which waits for the first one; collective. Where
  /// there is none, gives buffers back that are no longer needed.
  void advance();
  void wait() override;

 private:
  std::shared_ptr<MovingGroup> scatter_;
  std::shared_ptr<const GroupPlan> plan_;
  std::vector<at::Tensor> kept_;
  std::vector<at::Tensor> results_;
  std::shared_ptr<MovingGroup> sum_;
};

/// The reductions of a module, in the order in which they began.
class Reductions {
 public:
  explicit Reductions(const GroupingRules& rules) : rules_(rules) {}

  /// Returns the dtype in which gradients of a member are summed.
  c10::ScalarType dtype_of(const GroupMember& member) const;
  /// Returns the layout in which gradients of a member are reduced: partial
  /// sums along the mesh dim, and along that of copies.
  Placements unreduced(const GroupMember& member) const;

  /// Begins to reduce gradients of that layout.
  /// Returns those of the members, in order, which wait for it when they are
  /// used. Where a member has an addend, from begin_half(), it is added.
  std::vector<at::Tensor> begin(
      const MemberGroup& group, const std::vector<MemberGradient>& gradients,
      const std::vector<at::Tensor>& kept);
  /// The same, but sums of copies stay partial: local tensors of shards.
  std::vector<at::Tensor> begin_half(
      const MemberGroup& group, const std::vector<MemberGradient>& gradients);

  /// Waits for all but the last `count`.
  void wait_for_all_but(size_t count);

  int64_t begun = 0;  // of this step

 private:
  struct Known {
    std::string names;
    std::shared_ptr<const GroupPlan> plan;
  };
  struct OfOneDtype {
    c10::ScalarType dtype;
    std::vector<size_t> places;  // in the list of gradients
  };
  std::vector<OfOneDtype> by_dtype(
      const MemberGroup& group,
      const std::vector<MemberGradient>& gradients) const;
  std::shared_ptr<const GroupPlan> plan(
      GroupMoveKind kind, int64_t mesh_dim, std::vector<GroupItem> items,
      c10::ScalarType dtype, const std::string& names);
  bool has_copies() const { return rules_.replicate_dim >= 0; }
  SpecPtr scattered(const GroupMember& member, c10::ScalarType dtype) const;
  std::shared_ptr<MovingGroup> scatter(
      const MemberGroup& group, const std::vector<MemberGradient>& gradients,
      const OfOneDtype& part);
  void sum_copies(
      const MemberGroup& group, const std::vector<MemberGradient>& gradients,
      const std::vector<at::Tensor>& kept, const OfOneDtype& part,
      GroupReduction& reduction, std::vector<at::Tensor>& results);

  const GroupingRules& rules_;
  std::vector<Known> known_;
  std::deque<std::shared_ptr<GroupReduction>> under_way_;
};

}  // namespace tessera::detail::inline parallel_layer
