#include <tensor/move/prepared_plan.h>

#include <algorithm>

#include <c10/core/ScalarType.h>
#include <c10/util/accumulate.h>
#include <comm/direct.h>
#include <tensor/state/strides.h>
#include <tessera/tensor/dtensor_spec.h>

namespace tessera::detail::inline tensor_layer {

namespace {

using Coordinate = std::vector<int64_t>;

// Tells whether copies only say that both sides are the same `numel` elements.
bool is_identity(const StridedCopies& copies, int64_t numel) {
  int64_t done = 0;
  for (const StridedCopy& copy : copies) {
    if (!copy.is_run() || copy.from != done || copy.to != done) {
      return false;
    }
    done += copy.numel();
  }
  return done == numel;
}

TransferPlan transfer_in(const Step& step, const Communicator& group) {
  const int64_t me = group.ranks()[static_cast<size_t>(group.rank())];
  return plan_transfer(
      step.before, step.after, {group.ranks(), me, shares_memory(group)});
}

// Prepares one step on one mesh for the rank at its coordinate.
class Preparation {
 public:
  Preparation(const Step& step, const DeviceMesh& mesh)
      : step_(step),
        mesh_(mesh),
        mine_(*mesh.coordinate()),
        before_(region_of(step.before, mine_)),
        after_(region_of(step.after, mine_)) {
    result_.step = &step;
    result_.shape = step.after.local_shape(mine_);
  }

  PreparedStep run() {
    switch (step_.kind) {
      case StepKind::kAllGather:
        all_gather();
        break;
      case StepKind::kAllReduce:
        group();
        break;
      case StepKind::kReduceScatter:
        reduce_scatter();
        break;
      case StepKind::kAllToAll:
        group();
        result_.transfer = transfer_in(step_, result_.group);
        break;
      case StepKind::kSlice:
        result_.transfer.stay = copies_between(before_, after_);
        break;
      case StepKind::kToPartial:
        to_partial();
        break;
      case StepKind::kExchange:
        TORCH_INTERNAL_ASSERT(false, "an exchange has no coordinate");
    }
    return std::move(result_);
  }

 private:
  void group() { result_.group = mesh_.communicator_over(step_.mesh_dims); }

  // Calls f(coordinate) for every rank of the group, in group order: row-major
  // over the step's mesh dims.
  template <class F>
  void for_each_rank(const F& f) const {
    Coordinate coordinate = mine_;
    for_each_rank(coordinate, 0, f);
  }
  template <class F>
  void for_each_rank(Coordinate& coordinate, size_t next, const F& f) const {
    if (next == step_.mesh_dims.size()) {
      f(coordinate);
      return;
    }
    const int64_t dim = step_.mesh_dims[next];
    for (int64_t c = 0; c < mesh_.size(dim); ++c) {
      coordinate[static_cast<size_t>(dim)] = c;
      for_each_rank(coordinate, next + 1, f);
    }
  }

  void all_gather() {
    group();
    int64_t received = 0;
    TransferPlan& plan = result_.transfer;
    for_each_rank([&](const Coordinate& c) {
      StridedCopies copies = copies_between(region_of(step_.before, c), after_);
      append_shifted(plan.unpack, copies, received, 0);
      plan.received.push_back(total_numel(copies));
      plan.reads.push_back(std::move(copies));
      received += plan.received.back();
    });
    result_.receives_result = is_identity(plan.unpack, received);
    if (result_.receives_result || !shares_memory(result_.group)) {
      plan.reads.clear();
    }
  }

  void reduce_scatter() {
    group();
    int64_t sent = 0;
    TransferPlan& plan = result_.transfer;
    for_each_rank([&](const Coordinate& c) {
      const StridedCopies copies = packing(before_, region_of(step_.after, c));
      append_shifted(plan.pack, copies, 0, sent);
      plan.sent.push_back(total_numel(copies));
      sent += plan.sent.back();
    });
    result_.sends_shard = is_identity(
        plan.pack, c10::multiply_integers(step_.before.local_shape(mine_)));
  }

  void to_partial() {
    const Placements to = step_.to();
    for (size_t i = 0; i < to.size(); ++i) {
      result_.partials.emplace_back(
          to[i].reduce_op(), mine_[static_cast<size_t>(step_.mesh_dims[i])]);
    }
  }

  const Step& step_;
  const DeviceMesh& mesh_;
  const Coordinate& mine_;
  const Region before_;
  const Region after_;
  PreparedStep result_{};
};

// The ranks of both meshes, ascending; those of one mesh in its own order.
// Undefined on a rank outside.
Communicator exchange_group(
    const Step& step, const DeviceMesh& mesh, int64_t rank) {
  if (step.before.mesh() == step.after.mesh()) {
    return mesh.coordinate() ? mesh.whole() : Communicator();
  }
  std::vector<int64_t> ranks = step.before.mesh().ranks();
  const std::vector<int64_t> others = step.after.mesh().ranks();
  ranks.insert(ranks.end(), others.begin(), others.end());
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return std::binary_search(ranks.begin(), ranks.end(), rank)
             ? mesh.world().communicator(ranks)
             : Communicator();
}

PreparedStep prepare_exchange(const Step& step, const DeviceMesh& mesh) {
  const int64_t me = mesh.world().rank();
  PreparedStep result{.step = &step};
  result.group = exchange_group(step, mesh, me);
  result.takes_part = result.group.defined();
  if (!result.takes_part) {
    return result;
  }
  const auto here = step.after.mesh().coordinate_of(me);
  result.shape = here ? step.after.local_shape(*here) : std::vector<int64_t>{0};
  result.transfer = transfer_in(step, result.group);
  return result;
}

}  // namespace

PreparedStep prepare_step(const Step& step, const DeviceMesh& mesh) {
  if (step.kind == StepKind::kExchange) {
    return prepare_exchange(step, mesh);
  }
  return mesh.coordinate() ? Preparation(step, mesh).run()
                           : PreparedStep{.step = &step, .takes_part = false};
}

PreparedPlan::PreparedPlan(SpecPtr from, SpecPtr to, RedistributePlan by)
    : source(std::move(from)), target(std::move(to)), plan(std::move(by)) {
  for (const Step& step : plan.steps) {
    const bool arrived = step.after.mesh() == target->mesh().mesh_shape();
    steps.push_back(
        prepare_step(step, arrived ? target->mesh() : source->mesh()));
  }
  if (target->has_shard()) {
    strides = shard_strides(
        target->local_shape(), target->shape(), target->strides());
    if (strides == contiguous_strides(target->local_shape())) {
      strides.clear();
    }
  }
}

}  // namespace tessera::detail::inline tensor_layer
