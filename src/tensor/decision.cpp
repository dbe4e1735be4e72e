#include <tensor/decision.h>

#include <algorithm>

#include <tensor/movement.h>
#include <tensor/ways.h>
#include <tessera/tensor/machine_model.h>

namespace tessera::detail {

namespace {

const char* reason_of(Way way, const OpTraits& traits, bool has_cut) {
  switch (way) {
    case Way::kSpecial:
      return "a kernel of its own";
    case Way::kOnShards:
      return "elementwise, and all tensors have one layout";
    case Way::kReplicated:
      break;
  }
  if (!has_cut) {
    return "all tensors are replicated";
  }
  return traits.is_elementwise
             ? "elementwise, but the layouts differ or are Partial"
             : "no sharding rule";
}

void add_moves(
    const OpCall& call, const OpTraits& traits, Way way, MoveList& list) {
  switch (way) {
    case Way::kSpecial:
      if (traits.special_moves != nullptr) {
        traits.special_moves(call, list);
      }
      return;
    case Way::kOnShards:
      for (size_t i = 0; i < call.size(); ++i) {
        for_each_tensor(
            call.argument(i), [&](const at::Tensor& t) { list.fresh(i, t); });
      }
      return;
    case Way::kReplicated:
      add_replicated_moves(call, traits, list);
      return;
  }
}

}  // namespace

bool has_cut_argument(const OpCall& call) {
  bool found = false;
  call.for_each_argument_tensor([&](const at::Tensor& t) {
    found = found || (is_sharded(t) && !spec_of(t).is_replicated());
  });
  return found;
}

Choice choose_way(const OpCall& call, const OpTraits& traits) {
  if (traits.special != nullptr) {
    return {Way::kSpecial};
  }
  if (traits.is_elementwise) {
    if (const at::Tensor* reference = shared_layout(call, traits)) {
      return {Way::kOnShards, reference};
    }
  }
  return {Way::kReplicated};
}

void MoveList::add(
    size_t argument, const SpecPtr& source, const Placements& target,
    bool is_refresh) {
  if (source->placements() != target) {
    moves_.push_back({argument, source, target, is_refresh});
  }
}

void MoveList::fresh(size_t argument, const at::Tensor& t) {
  if (!is_sharded(t) || !moving_meta_of(t).whole) {
    return;
  }
  const Whole& whole = *moving_meta_of(t).whole;
  if (whole.is_stale() && refreshed_.insert(whole.shard.get()).second) {
    const SpecPtr& source = whole.shard->spec;
    add(argument, source, replicated(source->mesh()), /*is_refresh=*/true);
  }
}

void MoveList::value(size_t argument, const at::Tensor& t) {
  if (!is_sharded(t)) {
    return;
  }
  if (spec_of(t).is_replicated()) {
    fresh(argument, t);
  } else {
    add(argument, moving_meta_of(t).spec, replicated(spec_of(t).mesh()), false);
  }
}

void MoveList::whole(size_t argument, const at::Tensor& t) {
  if (is_sharded(t) && moving_meta_of(t).cell) {
    refreshed_.insert(moving_meta_of(t).cell.get());
  }
  value(argument, t);
}

void MoveList::shard(
    size_t argument, const at::Tensor& t, const Placements& target) {
  fresh(argument, t);
  add(argument, moving_meta_of(t).spec, target, false);
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

bool Decision::communicates() const {
  return std::any_of(moves.begin(), moves.end(), [](const Move& move) {
    const RedistributePlan plan = plan_of(move);
    return std::any_of(
        plan.steps.begin(), plan.steps.end(),
        [](const Step& step) { return detail::communicates(step); });
  });
}

Decision decide(const OpCall& call, const OpTraits& traits) {
  Decision decision;
  decision.way = choose_way(call, traits).way;
  const bool has_cut = has_cut_argument(call);
  decision.reason = reason_of(decision.way, traits, has_cut);
  decision.is_fallback = decision.way == Way::kReplicated && has_cut;
  MoveList list;
  add_moves(call, traits, decision.way, list);
  decision.moves = list.moves();
  return decision;
}

}  // namespace tessera::detail
