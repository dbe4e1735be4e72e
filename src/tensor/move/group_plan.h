// What happens to a list of tensors that move along one mesh dim together.
//
// Note [Groups of moves]
// A call between ranks has a price that does not depend on its size: agreement,
// messages, one wait. So tensors that move at the same time along one mesh dim
// travel as one: each rank's shards lie one after another in its run, in the
// order of the items, and the counts of the call are the sums of theirs. Shards
// have their true sizes, none is padded. A GroupPlan knows where each element
// lies in the run and in the tensor; start_group() carries it out. What a rank
// holds itself never travels, and is in no buffer.
//   items [3, 2] S(0) and [2] S(0) over 2 ranks: shards of 4 and 1 elements on
//   rank 0, of 2 and 1 on rank 1; counts 5 3; on rank 0 what arrives is
//   elements 4 and 5 of the first tensor, then element 1 of the second
// Ranks whose shards are equally large are one copy with a dim more: a plan is
// as large as its list of items, and made as fast, whatever the number of
// ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <plan/transfer/part_spans.h>
#include <plan/transfer/strided_copies.h>
#include <tessera/comm/communicator.h>
#include <tessera/tensor/dtensor_spec.h>

namespace tessera::detail::inline tensor_layer {

/// One tensor of a group. Both specs are of one shape on one mesh and differ in
/// the placement on one mesh dim, and maybe in strides and dtype.
struct GroupItem {
  SpecPtr from;  // of what is given
  SpecPtr to;    // of the result
};

/// What all items of a group do along its mesh dim.
enum class GroupMoveKind : uint8_t {
  kAllGather,      // from any cut, the innermost of its tensor dim, to R
  kReduceScatter,  // from P to any cut, likewise
  kAllReduce       // from P to R
};

/// The moves of a group, prepared for this rank. Immutable; kept by its owner.
class GroupPlan {
 public:
  /// Where the elements of one item lie.
  struct Transfer {
    /// all_gather: what arrives from others -> result; reduce_scatter: operand
    /// -> what is sent to others; all_reduce: none, since both are the same
    /// elements.
    StridedCopies copies = {};
    /// all_gather: my shard -> result; reduce_scatter: operand -> my shard.
    StridedCopies own = {};
    /// Where ranks read each other's tensors. all_gather: from the shard of
    /// each rank -> result; reduce_scatter: `own` alone.
    std::vector<StridedCopies> direct = {};
  };

  /// Prepares the moves of `items` along a mesh dim. All travel, and are
  /// reduced, as `sent_dtype`, whatever dtypes they have before and after.
  /// Ranks compare `names` ("'blocks.3' {weight, bias}") and the shapes when
  /// they communicate. Legal on a rank outside of the mesh, which does nothing.
  static std::shared_ptr<const GroupPlan> make(
      GroupMoveKind kind, int64_t mesh_dim, std::vector<GroupItem> items,
      c10::ScalarType sent_dtype, const std::string& names = {});

  GroupMoveKind kind() const { return kind_; }
  int64_t mesh_dim() const { return mesh_dim_; }
  const std::vector<GroupItem>& items() const { return items_; }
  c10::ScalarType sent_dtype() const { return sent_dtype_; }
  /// Of the partial values that are reduced; not for an all_gather.
  ReduceOp reduce_op() const;
  /// Undefined where this rank has nothing to do.
  const Communicator& group() const { return group_; }
  /// Returns the elements of each group rank's run, made anew; none for an
  /// all_reduce.
  std::vector<int64_t> counts() const;
  /// Return the elements of this rank's run, and of those of all others.
  int64_t own_count() const { return own_count_; }
  int64_t other_count() const { return other_count_; }
  const std::vector<Transfer>& transfers() const { return transfers_; }
  /// Returns what ranks compare: names, dtypes and shapes.
  const std::string& label() const { return label_; }

 private:
  GroupPlan(
      GroupMoveKind kind, int64_t mesh_dim, std::vector<GroupItem> items,
      c10::ScalarType sent_dtype, const std::string& names);
  void check() const;
  void check(const GroupItem& item) const;
  /// Ranks whose runs are equally long.
  struct RunSpan {
    int64_t first = 0;
    int64_t last = 0;
    int64_t count = 0;  // of each
  };
  void prepare();
  void lay_out(const std::vector<std::vector<PartSpan>>& parts, PartSide side);
  void read_directly(
      const std::vector<std::vector<PartSpan>>& parts, PartSide side);

  GroupMoveKind kind_;
  int64_t mesh_dim_;
  std::vector<GroupItem> items_;
  c10::ScalarType sent_dtype_;
  std::string label_;
  Communicator group_ = {};
  std::vector<RunSpan> runs_ = {};
  int64_t own_count_ = 0;
  int64_t other_count_ = 0;
  std::vector<Transfer> transfers_ = {};
};

}  // namespace tessera::detail::inline tensor_layer
