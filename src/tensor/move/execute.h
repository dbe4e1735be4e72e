// Carries out prepared plans.
#pragma once

#include <exception>
#include <functional>
#include <memory>

#include <ATen/core/Tensor.h>
#include <tensor/impl/sharded_impl.h>
#include <tensor/move/prepared_plan.h>

namespace tessera::detail::inline tensor_layer {

/// A shard on its way: a tensor whose memory is filled when wait() returns.
class MovingShard {
 public:
  explicit MovingShard(at::Tensor shard) : shard_(std::move(shard)) {}
  MovingShard(at::Tensor shard, Work work, std::function<void()> finish)
      : shard_(std::move(shard)),
        work_(std::move(work)),
        finish_(std::move(finish)),
        complete_(false) {}

  const at::Tensor& shard() const { return shard_; }
  bool is_complete() const { return complete_; }
  /// Waits and unpacks; throws what went wrong, again when asked again.
  const at::Tensor& wait();

 private:
  at::Tensor shard_;
  Work work_;
  std::function<void()> finish_;
  std::exception_ptr error_;
  bool complete_ = true;
};

/// Carries a plan out from this rank's shard of the source; all but the last
/// step are complete on return. The result lies as Note [How shards lie in
/// memory] says. It may be `shard` itself, or share its
/// memory, where nothing moves.
MovingShard start(const PreparedPlan& plan, const at::Tensor& shard);

/// An asynchronous move and the plan that it carries out.
struct PendingPlan final : PendingMove {
  PendingPlan(std::shared_ptr<const PreparedPlan> of, MovingShard moving)
      : plan(std::move(of)), shard(std::move(moving)) {}
  void wait() override { shard.wait(); }
  std::shared_ptr<const PreparedPlan> plan;  // ends after the move
  MovingShard shard;
};

/// Turns a replicated value into the partial value of one coordinate; exact.
at::Tensor partial_value_of(
    const at::Tensor& value, ReduceOp op, int64_t coordinate);

}  // namespace tessera::detail::inline tensor_layer
