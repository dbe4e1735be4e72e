#include <tensor/call/moves.h>

#include <algorithm>

#include <tensor/call/gathers.h>
#include <tensor/impl/sharded_impl.h>
#include <tensor/move/view_copies.h>
#include <tensor/state/replicated.h>
#include <tessera/tensor/machine_model.h>

namespace tessera::detail::inline tensor_layer {

void MoveList::add(
    size_t argument, const SpecPtr& source, const Placements& target,
    bool is_refresh) {
  if (source->placements() != target) {
    moves_.push_back({argument, source, target, is_refresh});
  }
}

void MoveList::refreshed(size_t argument, const at::Tensor& t) {
  if (!is_sharded(t) || !meta_nowait(t).copy) {
    return;
  }
  const ViewCopy& copy = *meta_nowait(t).copy;
  if (copy.is_stale() && refreshed_.insert(&copy).second) {
    add(argument, copy.shard->spec, copy.spec->placements(),
        /*is_refresh=*/true);
  }
}

void MoveList::value(size_t argument, const at::Tensor& t) {
  if (is_sharded(t)) {
    shard(argument, t, replicated(spec_of(t).mesh()));
  }
}

void MoveList::copy(
    size_t argument, const at::Tensor& t, const Placements& target) {
  if (is_sharded(t)) {
    refreshed(argument, t);
    copy(argument, meta_nowait(t), target);
  }
}

void MoveList::copy(
    size_t argument, const ShardedMeta& meta, const Placements& target) {
  if (const ViewSource* view_source = meta.view_source()) {
    for (const auto& known : view_source->copies) {
      const std::shared_ptr<ViewCopy> live = known.lock();
      if (live && live->spec->placements() == target) {
        refreshed_.insert(live.get());
      }
    }
  }
  add(argument, meta.spec, target, false);
}

void MoveList::shard(
    size_t argument, const at::Tensor& t, const Placements& target) {
  refreshed(argument, t);
  if (is_sharded(t)) {
    add(argument, meta_nowait(t).spec, target, false);
  }
}

void MoveList::back(
    size_t argument, const at::Tensor& t, const Placements& result) {
  if (!is_sharded(t)) {
    return;
  }
  const DTensorSpec& spec = spec_of(t);
  add(argument, spec.with_placements(result), spec.placements(), false);
}

std::vector<Move> moves_of(
    const OpCall& call, const OpTraits& traits, const Decision& decision) {
  MoveList list;
  if (decision.strategy == Strategy::kCustomKernel) {
    if (traits.custom_kernel_moves != nullptr) {
      traits.custom_kernel_moves(call, list);
    }
    return list.moves();
  }
  if (decision.strategy == Strategy::kDecomposed) {
    return {};  // its calls are decided one by one
  }
  for (const OperandPlan& plan : decision.operands) {
    if (!plan.defined || plan.out) {
      continue;
    }
    const at::Tensor& t = *tensor_at(call, plan);
    const auto argument = static_cast<size_t>(plan.argument);
    plan.viewed&& plan.moves ? list.copy(argument, t, plan.target)
                             : list.shard(argument, t, plan.target);
  }
  for (const OperandPlan& plan : decision.operands) {
    if (plan.defined && plan.written) {
      list.back(
          static_cast<size_t>(plan.argument), *tensor_at(call, plan),
          placements_after(decision, plan));
    }
  }
  return list.moves();
}

bool is_gather(const Move& move) {
  return !move.is_part && !move.exchange &&
         is_gather(*move.source, move.source->placements(), move.target);
}

bool communicates(const std::vector<Move>& moves) {
  return std::any_of(moves.begin(), moves.end(), [](const Move& move) {
    if (move.exchange) {
      return move.exchange->bytes > 0;
    }
    const RedistributePlan plan = plan_of(move);
    return std::any_of(
        plan.steps.begin(), plan.steps.end(),
        [](const Step& step) { return communicates(step); });
  });
}

bool communicates(const Step& step) {
  if (step.is_local()) {
    return false;
  }
  if (step.kind == StepKind::kExchange) {
    return step.before.mesh().size() > 1 || step.after.mesh().size() > 1;
  }
  return std::any_of(
      step.mesh_dims.begin(), step.mesh_dims.end(),
      [&](int64_t m) { return step.after.mesh().size(m) > 1; });
}

RedistributePlan plan_of(
    const DTensorSpec& source, const DeviceMesh& mesh,
    const Placements& placements) {
  return plan_redistribution(
      source.layout(), Layout(source.shape(), mesh.mesh_shape(), placements),
      static_cast<int64_t>(c10::elementSize(source.dtype())), machine_model());
}

RedistributePlan plan_of(const Move& move) {
  return plan_of(*move.source, move.source->mesh(), move.target);
}

}  // namespace tessera::detail::inline tensor_layer
