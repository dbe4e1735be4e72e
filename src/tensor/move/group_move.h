// Carries out a group of moves; see Note [Groups of moves], group_plan.h.
#pragma once

#include <exception>
#include <functional>
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
      std::shared_ptr<const GroupPlan> plan, std::vector<at::Tensor> results,
      std::function<void()> make_room);

  /// Waits and unpacks; throws what went wrong, again when asked again.
  void wait() override;
  /// Does as wait() where that would return at once, so that buffers go early.
  /// When that is differs between ranks: nothing else may depend on it.
  void wait_if_done();
  /// Tells whether wait() has returned; never asks whether it would.
  bool is_complete() const { return complete_; }
  /// Returns the bytes that have arrived, or will, and lie in a buffer beside
  /// the results when wait() fills these.
  int64_t buffered_bytes() const;
  const std::vector<GroupItem>& items() const { return plan_->items(); }
  /// Returns the local tensors of the items' `to`, in their order.
  const std::vector<at::Tensor>& results() const { return results_; }

 private:
  friend class GroupStart;
  void make_room();
  void unpack() const;

  at::Tensor landing(size_t i) const;

  std::shared_ptr<const GroupPlan> plan_;
  std::vector<at::Tensor> results_;
  /// What arrives from others, in rank order, or what is reduced; undefined
  /// where ranks read each other's tensors.
  at::Tensor run_;
  std::vector<at::Tensor> own_;  // of an all_gather: this rank's shards
  std::function<void()> make_room_;
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
/// from all operands. New ones never have the memory of an operand; those of a
/// reduce_scatter may share a block. Results that are given may be without
/// memory until `make_room` gives it to them: it is called as late as there is
/// something to write. No version counter is touched. Never null.
std::shared_ptr<MovingGroup> start_group(
    const std::shared_ptr<const GroupPlan>& plan,
    const std::vector<at::Tensor>& operands,
    std::vector<at::Tensor> results = {}, Operands later = Operands::kStay,
    std::function<void()> make_room = {});

/// Wraps the results of a group; all wait for it when they are used.
std::vector<at::Tensor> wrap_group(const std::shared_ptr<MovingGroup>& moving);

}  // namespace tessera::detail::inline tensor_layer
