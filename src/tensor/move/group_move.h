// Carries out a group of moves; see Note [Groups of moves], group_plan.h.
#pragma once

#include <exception>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>
#include <tensor/impl/sharded_impl.h>
#include <tensor/move/group_plan.h>
#include <tessera/comm/communicator.h>

namespace tessera::detail::inline tensor_layer {

/// A group on its way: results are filled when wait() returns. May be the
/// pending move of all wrappers around its results, so that the first of them
/// that is used settles all. Dropped before, it waits and fills none.
class MovingGroup final : public PendingMove {
 public:
  MovingGroup(
      std::shared_ptr<const GroupPlan> plan, std::vector<at::Tensor> results);

  /// Waits and unpacks; throws what went wrong, again when asked again.
  void wait() override;
  /// Tells whether wait() has returned; never asks whether it would.
  bool is_complete() const { return complete_; }
  const std::vector<GroupItem>& items() const { return plan_->items(); }
  /// Returns the local tensors of the items' `to`, in their order.
  const std::vector<at::Tensor>& results() const { return results_; }

 private:
  friend class GroupStart;
  void unpack() const;

  std::shared_ptr<const GroupPlan> plan_;
  std::vector<at::Tensor> results_;
  at::Tensor run_;  // what arrives, in rank order; undefined where ranks read
  /// Row-major and as on the wire: the results, or what becomes them.
  std::vector<at::Tensor> landings_;
  std::exception_ptr error_;
  bool complete_ = false;
  Work work_;  // ends first: the memory above must outlive it
};

/// What happens to operands after start_group().
enum class Operands : uint8_t {
  kStay,      // nobody writes them before wait() returns
  kMayChange  // they were copied, and may be the results
};

/// Starts a group of moves: one call, or none where the group is empty or this
/// rank outside of the mesh. `operands` are the local tensors of the items'
/// `from`, of any strides. `results`, where given, are written instead of new
/// tensors: dense, with the shape, strides and dtype of the items' `to`, apart
/// from all operands. New ones have memory of their own each, never that of an
/// operand. No version counter is touched. Never null.
std::shared_ptr<MovingGroup> start_group(
    const std::shared_ptr<const GroupPlan>& plan,
    const std::vector<at::Tensor>& operands,
    std::vector<at::Tensor> results = {}, Operands later = Operands::kStay);

/// Wraps the results of a group; all wait for it when they are used.
std::vector<at::Tensor> wrap_group(const std::shared_ptr<MovingGroup>& moving);

}  // namespace tessera::detail::inline tensor_layer
