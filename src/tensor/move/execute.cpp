#include <tensor/move/execute.h>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/accumulate.h>
#include <comm/direct.h>
#include <tensor/move/arranged.h>
#include <tensor/move/cpu_block_cache.h>
#include <tensor/move/step_label.h>

namespace tessera::detail::inline tensor_layer {

namespace {

// One step on its way.
class StepRun {
 public:
  // `in_place`: the shard is an intermediate result, which may be overwritten.
  StepRun(const PreparedStep& step, const at::Tensor& shard, bool in_place)
      : step_(step), shard_(shard), in_place_(in_place) {}

  MovingShard start() {
    if (!step_.takes_part) {
      return MovingShard(shard_);
    }
    switch (step_.step->kind) {
      case StepKind::kAllGather:
        return all_gather();
      case StepKind::kAllReduce:
        return all_reduce();
      case StepKind::kReduceScatter:
        return reduce_scatter();
      case StepKind::kAllToAll:
      case StepKind::kExchange:
        return all_to_all();
      case StepKind::kSlice:
        return slice();
      case StepKind::kToPartial:
        return to_partial();
    }
    TORCH_INTERNAL_ASSERT(false, "step of unknown kind");
  }

 private:
  at::Tensor new_shard() const {
    return empty_cached(step_.shape, shard_.options());
  }
  at::Tensor new_flat(const std::vector<int64_t>& counts) const {
    return empty_cached({c10::sum_integers(counts)}, shard_.options());
  }
  ReduceOp reduce_op() const { return step_.step->from()[0].reduce_op(); }

  at::Tensor packed() const {
    if (step_.sends_shard) {
      return shard_;
    }
    const at::Tensor flat = new_flat(step_.transfer.sent);
    run_copies(step_.transfer.pack, shard_, 0, flat, 0);
    return flat;
  }

  MovingShard all_gather() const {
    at::Tensor result = new_shard();
    if (!step_.transfer.reads.empty()) {
      Work work = all_gather_direct(
          step_.group, result, shard_, step_.transfer.reads,
          step_.transfer.received);
      return MovingShard(std::move(result), std::move(work), {});
    }
    const at::Tensor flat =
        step_.receives_result ? result : new_flat(step_.transfer.received);
    Work work =
        step_.group.all_gather_async(flat, shard_, step_.transfer.received);
    return arriving(std::move(result), flat, std::move(work));
  }

  MovingShard all_reduce() const {
    at::Tensor result = in_place_ ? shard_ : new_shard();
    Work work = step_.group.all_reduce_async(result, shard_, reduce_op());
    return MovingShard(std::move(result), std::move(work), {});
  }

  MovingShard reduce_scatter() const {
    at::Tensor result = new_shard();
    Work work = step_.group.reduce_scatter_async(
        result, packed(), step_.transfer.sent, reduce_op());
    return MovingShard(std::move(result), std::move(work), {});
  }

  MovingShard all_to_all() const {
    at::Tensor result = new_shard();
    if (!step_.transfer.reads.empty()) {
      Work work = all_to_all_direct(
          step_.group, result, shard_, step_.transfer.reads,
          step_.transfer.received, step_.transfer.sent);
      return MovingShard(std::move(result), std::move(work), {});
    }
    const at::Tensor flat = new_flat(step_.transfer.received);
    Work work = step_.group.all_to_all_async(
        flat, packed(), step_.transfer.received, step_.transfer.sent);
    run_copies(step_.transfer.stay, shard_, 0, result, 0);
    return arriving(std::move(result), flat, std::move(work));
  }

  MovingShard slice() const {
    at::Tensor result = new_shard();
    run_copies(step_.transfer.stay, shard_, 0, result, 0);
    return MovingShard(std::move(result));
  }

  MovingShard to_partial() const {
    at::Tensor result = shard_;
    for (const auto& [op, coordinate] : step_.partials) {
      result = partial_value_of(result, op, coordinate);
    }
    return MovingShard(std::move(result));
  }

  // What is left to do when the work is done: unpacking.
  MovingShard arriving(
      at::Tensor result, const at::Tensor& flat, Work work) const {
    if (flat.is_same(result)) {
      return MovingShard(std::move(result), std::move(work), {});
    }
    const StridedCopies* copies =
        &step_.transfer.unpack;  // the caller keeps the plan
    auto unpack = [copies, flat, result] {
      run_copies(*copies, flat, 0, result, 0);
    };
    return MovingShard(result, std::move(work), std::move(unpack));
  }

  const PreparedStep& step_;
  const at::Tensor& shard_;
  bool in_place_;
};

// What a Partial holds on every coordinate but the first: the element that
// changes nothing. -0.0, since adding 0.0 would lose the sign of -0.0.
at::Tensor neutral_like(const at::Tensor& value, ReduceOp op) {
  if (op == ReduceOp::kProduct) {
    return at::ones_like(value);
  }
  if (value.is_complex()) {
    return at::full_like(value, c10::complex<double>(-0.0, -0.0));
  }
  return value.is_floating_point() ? at::full_like(value, -0.0)
                                   : at::zeros_like(value);
}

}  // namespace

const at::Tensor& MovingShard::wait() {
  if (error_) {
    std::rethrow_exception(error_);
  }
  if (complete_) {
    return shard_;
  }
  try {
    work_.wait();
    if (finish_) {
      finish_();
    }
  } catch (...) {
    error_ = std::current_exception();
    throw;
  }
  complete_ = true;
  finish_ = {};
  return shard_;
}

at::Tensor partial_value_of(
    const at::Tensor& value, ReduceOp op, int64_t coordinate) {
  const bool everywhere =
      op == ReduceOp::kMax || op == ReduceOp::kMin || op == ReduceOp::kAvg;
  return everywhere || coordinate == 0 ? value : neutral_like(value, op);
}

namespace {

// Brings a row-major shard into the target's order of dims, when it is there.
MovingShard arranging(MovingShard moving, const std::vector<int64_t>& strides) {
  if (moving.is_complete()) {
    return MovingShard(arranged(moving.shard(), strides));
  }
  const at::Tensor& arriving = moving.shard();
  at::Tensor result =
      at::empty_strided(arriving.sizes(), strides, arriving.options());
  const auto rest = std::make_shared<MovingShard>(std::move(moving));
  auto arrange = [rest, result] {
    // Fills the shard: no write that autograd should hear of.
    at::AutoDispatchBelowADInplaceOrView below;
    result.copy_(rest->wait());
  };
  return MovingShard(std::move(result), Work(), std::move(arrange));
}

}  // namespace

MovingShard start(const PreparedPlan& plan, const at::Tensor& shard) {
  const at::Tensor source = shard.resolve_conj().resolve_neg().contiguous();
  MovingShard current(source);
  for (const PreparedStep& step : plan.steps) {
    const at::Tensor held = current.wait();
    const StepLabel label(*step.step, held.numel(), step.shape);
    current = StepRun(step, held, !held.is_alias_of(shard)).start();
  }
  return plan.strides.empty() ? std::move(current)
                              : arranging(std::move(current), plan.strides);
}

}  // namespace tessera::detail::inline tensor_layer
