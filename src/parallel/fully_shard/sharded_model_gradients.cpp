// Gradients of a group: reduced, or kept until the passes of an Accumulate are
// over.
#include <algorithm>
#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <comm/log/call_cause.h>
#include <parallel/fully_shard/sharded_model.h>
#include <tensor/impl/wrap.h>
#include <tensor/move/view_copies.h>
#include <tensor/state/replicated.h>
#include <tessera/tensor/dtensor.h>
#include <torch/csrc/autograd/graph_task.h>

namespace tessera::detail::inline parallel_layer {

using torch::autograd::variable_list;

namespace {

// ATen's own formulas make plain gradients, equal on all ranks.
at::Tensor as_sharded(const at::Tensor& gradient, const DeviceMesh& mesh) {
  return is_sharded(gradient)
             ? gradient
             : from_local(
                   gradient._is_zerotensor()
                       ? at::zeros(gradient.sizes(), gradient.options())
                       : gradient,
                   mesh, replicated(mesh));
}

}  // namespace

// Brings a gradient to partial sums along the mesh dim.
MemberGradient ShardedModel::prepared(
    const GroupMember& member, size_t number,
    const at::Tensor& gradient) const {
  const CallCause cause("fully_shard: gradient", &rules_.mesh);
  at::Tensor sharded = as_sharded(gradient, rules_.mesh);
  const Placements wanted = reductions_.unreduced(member);
  if (spec_of(sharded).placements() != wanted) {
    sharded = redistribute(sharded, wanted);
  }
  at::AutoDispatchBelowADInplaceOrView below;
  return {number, refreshed_shard(sharded), meta_ready(sharded).spec};
}

variable_list ShardedModel::reduce(size_t group, variable_list&& gradients) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      !c10::GradMode::is_enabled(), "fully_shard: gradients of group '",
      groups_[group].path(),
      "' with create_graph are not implemented; call backward() or "
      "autograd::grad() without it");
  end_pass_later();
  const MemberGroup& its = groups_[group];
  variable_list results(gradients.size());
  std::vector<MemberGradient> partial;
  for (size_t m = 0; m < gradients.size(); ++m) {
    if (gradients[m].defined() && its.members()[m].needs_grad()) {
      partial.push_back(
          prepared(its.members()[m], m, std::exchange(gradients[m], {})));
    }
  }
  fill_unused(group, partial);
  close(group);
  if (!keeps_weights() || accumulating_ == 0) {
    release(group);
  }
  if (accumulating_ > 0 && keep_ != Keep::kShards) {
    keep_unreduced(group, std::move(partial));
  } else if (accumulating_ > 0 && rules_.replicate_dim >= 0) {
    keep_scattered(group, partial);
  } else {
    add_kept(group, partial);
    const auto sums = reductions_.begin(
        its, partial, std::exchange(kept_[group].scattered, {}));
    for (size_t i = 0; i < sums.size(); ++i) {
      results[partial[i].member] = sums[i];
    }
    partial.clear();  // packed by now, where ranks do not read each other's
    reductions_.wait_for_all_but(
        static_cast<size_t>(rules_.options.max_reductions));
  }
  prefetch(backward_);
  return results;
}

void ShardedModel::fill_unused(
    size_t group, std::vector<MemberGradient>& gradients) const {
  if (!rules_.options.fill_unused) {
    return;
  }
  const auto& members = groups_[group].members();
  std::vector<MemberGradient> all;
  auto given = gradients.begin();
  for (size_t m = 0; m < members.size(); ++m) {
    if (given != gradients.end() && given->member == m) {
      all.push_back(std::move(*given++));
    } else if (members[m].needs_grad()) {
      const SpecPtr spec = members[m].unsharded->spec()->with_placements(
          reductions_.unreduced(members[m]));
      all.push_back(
          {m,
           at::zeros(
               spec->local_shape(),
               members[m].shard.options().dtype(spec->dtype())),
           spec});
    }
  }
  gradients = std::move(all);
}

// Added up in the dtype of the reduction.
void ShardedModel::keep_unreduced(
    size_t group, std::vector<MemberGradient> gradients) {
  at::AutoDispatchBelowADInplaceOrView below;
  auto& kept = kept_[group].unreduced;
  kept.resize(groups_[group].members().size());
  for (MemberGradient& g : gradients) {
    const auto dtype = reductions_.dtype_of(groups_[group].members()[g.member]);
    MemberGradient& sum = kept[g.member];
    if (sum.local.defined()) {
      sum.local.add_(g.local);
    } else {
      sum = {
          g.member, g.local.to(dtype, /*non_blocking=*/false, /*copy=*/true),
          g.spec->with_dtype(dtype)};
    }
  }
}

void ShardedModel::keep_scattered(
    size_t group, const std::vector<MemberGradient>& gradients) {
  const auto sums = reductions_.begin_half(groups_[group], gradients);
  at::AutoDispatchBelowADInplaceOrView below;
  auto& kept = kept_[group].scattered;
  kept.resize(groups_[group].members().size());
  for (size_t i = 0; i < sums.size(); ++i) {
    at::Tensor& sum = kept[gradients[i].member];
    if (sum.defined()) {
      sum.add_(sums[i]);
    } else {
      sum = sums[i];
    }
  }
}

// What earlier passes kept joins the gradients of the last one.
void ShardedModel::add_kept(
    size_t group, std::vector<MemberGradient>& gradients) {
  const auto kept = std::exchange(kept_[group].unreduced, {});
  at::AutoDispatchBelowADInplaceOrView below;
  for (const MemberGradient& sum : kept) {
    if (!sum.local.defined()) {
      continue;
    }
    const auto given = std::find_if(
        gradients.begin(), gradients.end(),
        [&](const MemberGradient& g) { return g.member == sum.member; });
    if (given == gradients.end()) {
      gradients.push_back(sum);
    } else {
      at::Tensor total = sum.local;
      total.add_(given->local);
      *given = {sum.member, total, sum.spec};
    }
  }
  std::sort(
      gradients.begin(), gradients.end(),
      [](const MemberGradient& a, const MemberGradient& b) {
        return a.member < b.member;
      });
}

// Groups that only earlier passes of an Accumulate reached.
void ShardedModel::reduce_left_over() {
  for (size_t g = 0; g < groups_.size(); ++g) {
    KeptGradients& kept = kept_[g];
    if (kept.empty()) {
      continue;
    }
    std::vector<MemberGradient> partial;
    add_kept(g, partial);
    for (size_t m = 0; m < kept.scattered.size(); ++m) {
      const GroupMember& member = groups_[g].members()[m];
      const bool known = std::any_of(
          partial.begin(), partial.end(),
          [&](const MemberGradient& p) { return p.member == m; });
      if (kept.scattered[m].defined() && !known) {
        const SpecPtr spec = member.unsharded->spec()->with_placements(
            reductions_.unreduced(member));
        partial.push_back(
            {m,
             at::zeros(
                 spec->local_shape(),
                 member.shard.options().dtype(spec->dtype())),
             spec});
      }
    }
    const auto sums = reductions_.begin(
        groups_[g], partial, std::exchange(kept.scattered, {}));
    reductions_.wait_for_all_but(0);
    for (size_t i = 0; i < sums.size(); ++i) {
      const at::Tensor leaf =
          groups_[g].members()[partial[i].member].parameter();
      if (leaf.defined()) {
        leaf.mutable_grad() =
            leaf.grad().defined() ? leaf.grad().add(sums[i]) : sums[i];
      }
    }
  }
}

void ShardedModel::begin_accumulating(Keep keep) {
  TORCH_CHECK_VALUE(
      accumulating_ == 0 || keep == keep_,
      "FullyShard::Accumulate: another one lives that keeps something else; "
      "end it first, or keep the same");
  ++accumulating_;
  keep_ = keep;
  keeping_weights_ = keeping_weights_ || keep == Keep::kUnreducedAndWeights;
}

void ShardedModel::end_accumulating() {
  --accumulating_;
}

ShardedModel::~ShardedModel() {
  const bool lost = std::any_of(
      kept_.begin(), kept_.end(),
      [](const KeptGradients& kept) { return !kept.empty(); });
  if (lost) {
    TORCH_WARN(
        "fully_shard: gradients that a FullyShard::Accumulate kept were never "
        "reduced; run the last backward pass of a step without it");
  }
}

FullyShardReport ShardedModel::report() const {
  FullyShardReport report;
  for (size_t g = 0; g < groups_.size(); ++g) {
    FullyShardReport::Group group;
    group.path = groups_[g].path();
    for (const GroupMember& member : groups_[g].members()) {
      group.members.push_back(member.name);
      group.shard_bytes +=
          member.shard.numel() * static_cast<int64_t>(member.shard.itemsize());
      group.handed_out_bytes +=
          member.unsharded->is_handed_out() ? member.unsharded->bytes() : 0;
    }
    group.unsharded_bytes = groups_[g].unsharded_bytes();
    group.is_gathered = groups_[g].has_memory();
    group.is_accumulating = !kept_[g].empty();
    report.groups.push_back(std::move(group));
  }
  const auto paths = [&](const std::vector<size_t>& order) {
    std::vector<std::string> names;
    for (const size_t g : order) {
      names.push_back(groups_[g].path());
    }
    return names;
  };
  report.forward_order = paths(forward_.last());
  report.backward_order = paths(backward_.last());
  report.gathers = last_gathers_;
  report.reductions = last_reductions_;
  report.gathered_bytes = bytes_;
  report.peak_gathered_bytes = peak_bytes_;
  return report;
}

}  // namespace tessera::detail::inline parallel_layer
