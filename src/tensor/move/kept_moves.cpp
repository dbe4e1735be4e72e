#include <tensor/move/kept_moves.h>

#include <algorithm>
#include <utility>

#include <c10/util/Exception.h>
#include <tessera/tensor/dtensor_spec.h>

namespace tessera::detail::inline tensor_layer {

namespace {

thread_local KeptMoves::Keep* current_keep = nullptr;
thread_local KeptMoves::Take* current_take = nullptr;

// A step that stays on its rank costs less than a copy of its result.
bool crosses_ranks(const PreparedPlan& plan) {
  return std::any_of(
      plan.steps.begin(), plan.steps.end(),
      [](const PreparedStep& step) { return !step.step->is_local(); });
}

std::string ends_of(const PreparedPlan& plan) {
  return to_string(*plan.source) + " to " + to_string(*plan.target);
}

}  // namespace

KeptMoves::Keep::Keep(KeptMoves& moves) : moves_(moves), outer_(current_keep) {
  current_keep = this;
}
KeptMoves::Keep::~Keep() {
  current_keep = outer_;
}

KeptMoves::Take::Take(const KeptMoves* moves, bool once)
    : moves_(moves),
      once_(once),
      outer_keep_(std::exchange(current_keep, nullptr)),
      outer_take_(std::exchange(current_take, this)) {}
KeptMoves::Take::~Take() {
  current_keep = outer_keep_;
  current_take = outer_take_;
}

KeptMoves::Suspend::Suspend()
    : keep_(std::exchange(current_keep, nullptr)),
      take_(std::exchange(current_take, nullptr)) {}
KeptMoves::Suspend::~Suspend() {
  current_keep = keep_;
  current_take = take_;
}

at::Tensor KeptMoves::Take::next(const PreparedPlan& plan) {
  if (moves_ == nullptr) {
    return {};
  }
  const auto& all = moves_->all_;
  TORCH_CHECK_VALUE(
      taken_ < all.size(), "activation_checkpoint, rank ",
      plan.source->mesh().world().rank(),
      ": fn must move the same tensors each time it runs; it made ", all.size(),
      " moves in the forward, and in the recomputation one more: ",
      ends_of(plan));
  One& one = *all[taken_++];
  TORCH_CHECK_VALUE(
      one.plan->source == plan.source && one.plan->target == plan.target,
      "activation_checkpoint, rank ", plan.source->mesh().world().rank(),
      ": fn must move the same tensors each time it runs; move ", taken_,
      " was ", ends_of(*one.plan), " in the forward, and is ", ends_of(plan),
      " in the recomputation");
  at::Tensor result = once_ ? std::exchange(one.result, {}) : one.result;
  // The caller may overwrite it.
  return !result.defined() || result.use_count() == 1 ? result : result.clone();
}

MovingShard KeptMoves::start(
    const std::shared_ptr<const PreparedPlan>& plan, const at::Tensor& shard) {
  if ((current_keep == nullptr && current_take == nullptr) ||
      !crosses_ranks(*plan)) {
    return detail::start(*plan, shard);
  }
  at::Tensor taken =
      current_take == nullptr ? at::Tensor() : current_take->next(*plan);
  MovingShard moving = taken.defined() ? MovingShard(std::move(taken))
                                       : detail::start(*plan, shard);
  if (current_keep == nullptr) {
    return moving;
  }
  // One for each, so that who takes a result leaves the others theirs.
  std::vector<std::shared_ptr<One>> kept;
  for (Keep* keep = current_keep; keep != nullptr; keep = keep->outer_) {
    kept.push_back(std::make_shared<One>(One{plan, {}}));
    keep->moves_.all_.push_back(kept.back());
  }
  at::Tensor result = moving.shard();
  const auto rest = std::make_shared<MovingShard>(std::move(moving));
  return MovingShard(std::move(result), Work(), [kept = std::move(kept), rest] {
    const at::Tensor copy = rest->wait().clone();
    for (const auto& one : kept) {
      one->result = copy;
    }
  });
}

}  // namespace tessera::detail::inline tensor_layer
