#include <parallel/fully_shard/reductions.h>

#include <algorithm>
#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <comm/log/call_cause.h>
#include <tensor/impl/wrap.h>
#include <tensor/move/redistribute_shard.h>

namespace tessera::detail::inline parallel_layer {

namespace {

constexpr size_t kMostPlans = 1024;
constexpr const char* kCause = "fully_shard: reduce";

bool are_equal(
    const std::vector<GroupItem>& a, const std::vector<GroupItem>& b) {
  return std::equal(
      a.begin(), a.end(), b.begin(), b.end(),
      [](const GroupItem& x, const GroupItem& y) {
        return x.from == y.from && x.to == y.to;
      });
}

at::Tensor new_shard(const SpecPtr& spec, const at::Tensor& like) {
  at::Tensor shard = at::empty({0}, like.options().dtype(spec->dtype()));
  if (!spec->has_shard()) {
    return shard;
  }
  return at::empty_strided(
      spec->local_shape(), strides_of_shard(*spec), shard.options());
}

}  // namespace

void GroupReduction::reduce_again(
    std::shared_ptr<const GroupPlan> plan, std::vector<at::Tensor> kept,
    std::vector<at::Tensor> results) {
  plan_ = std::move(plan);
  kept_ = std::move(kept);
  results_ = std::move(results);
}

void GroupReduction::advance() {
  if (!plan_) {
    scatter_->wait_if_done();
    return;
  }
  if (sum_) {
    return;
  }
  scatter_->wait();
  at::AutoDispatchBelowADInplaceOrView below;
  const std::vector<at::Tensor>& sums = scatter_->results();
  for (size_t i = 0; i < sums.size(); ++i) {
    if (kept_[i].defined()) {
      at::Tensor sum = sums[i];
      sum.add_(kept_[i]);
    }
  }
  const CallCause cause(kCause);
  sum_ = start_group(plan_, sums, std::move(results_));
}

void GroupReduction::wait() {
  if (plan_) {
    advance();
  }
  (sum_ ? sum_ : scatter_)->wait();
}

c10::ScalarType Reductions::dtype_of(const GroupMember& member) const {
  const MixedPrecisionPolicy& policy = rules_.options.mp_policy;
  return policy.reduce_dtype.value_or(
      policy.param_dtype.value_or(member.spec->dtype()));
}

Placements Reductions::unreduced(const GroupMember& member) const {
  Placements placements = member.spec->placements();
  placements[static_cast<size_t>(rules_.mesh_dim)] = Partial();
  if (has_copies()) {
    placements[static_cast<size_t>(rules_.replicate_dim)] = Partial();
  }
  return placements;
}

std::vector<Reductions::OfOneDtype> Reductions::by_dtype(
    const MemberGroup& group,
    const std::vector<MemberGradient>& gradients) const {
  std::vector<OfOneDtype> parts;
  for (size_t i = 0; i < gradients.size(); ++i) {
    const auto dtype = dtype_of(group.members()[gradients[i].member]);
    auto part = std::find_if(parts.begin(), parts.end(), [&](const auto& p) {
      return p.dtype == dtype;
    });
    if (part == parts.end()) {
      part = parts.insert(part, {dtype, {}});
    }
    part->places.push_back(i);
  }
  return parts;
}

std::shared_ptr<const GroupPlan> Reductions::plan(
    GroupMoveKind kind, int64_t mesh_dim, std::vector<GroupItem> items,
    c10::ScalarType dtype, const std::string& names) {
  for (const Known& known : known_) {
    if (known.plan->kind() == kind && known.plan->sent_dtype() == dtype &&
        known.names == names && are_equal(known.plan->items(), items)) {
      return known.plan;
    }
  }
  if (known_.size() == kMostPlans) {
    known_.clear();
  }
  known_.push_back(
      {names, GroupPlan::make(kind, mesh_dim, std::move(items), dtype, names)});
  return known_.back().plan;
}

// What a reduce_scatter leaves of a member: its shard, or where there are
// copies, partial values of that.
SpecPtr Reductions::scattered(
    const GroupMember& member, c10::ScalarType dtype) const {
  if (!has_copies()) {
    return member.spec;
  }
  Placements placements = member.spec->placements();
  placements[static_cast<size_t>(rules_.replicate_dim)] = Partial();
  return member.spec->with_placements(placements)->with_dtype(dtype);
}

std::shared_ptr<MovingGroup> Reductions::scatter(
    const MemberGroup& group, const std::vector<MemberGradient>& gradients,
    const OfOneDtype& part) {
  std::vector<GroupItem> items;
  std::vector<at::Tensor> locals;
  std::vector<size_t> members;
  for (const size_t i : part.places) {
    const MemberGradient& g = gradients[i];
    items.push_back({g.spec, scattered(group.members()[g.member], part.dtype)});
    locals.push_back(g.local);
    members.push_back(g.member);
  }
  ++begun;
  return start_group(
      plan(
          GroupMoveKind::kReduceScatter, rules_.mesh_dim, std::move(items),
          part.dtype, "reduce " + group.names_of(members)),
      locals);
}

void Reductions::sum_copies(
    const MemberGroup& group, const std::vector<MemberGradient>& gradients,
    const std::vector<at::Tensor>& kept, const OfOneDtype& part,
    GroupReduction& reduction, std::vector<at::Tensor>& results) {
  std::vector<GroupItem> items;
  std::vector<at::Tensor> added;
  std::vector<size_t> members;
  for (size_t p = 0; p < part.places.size(); ++p) {
    const size_t m = gradients[part.places[p]].member;
    const GroupMember& member = group.members()[m];
    items.push_back({scattered(member, part.dtype), member.spec});
    added.push_back(m < kept.size() ? kept[m] : at::Tensor());
    members.push_back(m);
    results[p] = new_shard(member.spec, results[p]);
  }
  reduction.reduce_again(
      plan(
          GroupMoveKind::kAllReduce, rules_.replicate_dim, std::move(items),
          part.dtype, "sum copies of " + group.names_of(members)),
      std::move(added), results);
}

std::vector<at::Tensor> Reductions::begin(
    const MemberGroup& group, const std::vector<MemberGradient>& gradients,
    const std::vector<at::Tensor>& kept) {
  const CallCause cause(kCause, &rules_.mesh);
  for (const auto& reduction : under_way_) {
    reduction->advance();
  }
  std::vector<at::Tensor> sums(gradients.size());
  for (const OfOneDtype& part : by_dtype(group, gradients)) {
    const auto moving = scatter(group, gradients, part);
    auto reduction = std::make_shared<GroupReduction>(moving);
    std::vector<at::Tensor> results = moving->results();
    if (has_copies()) {
      sum_copies(group, gradients, kept, part, *reduction, results);
    }
    for (size_t p = 0; p < part.places.size(); ++p) {
      const size_t m = gradients[part.places[p]].member;
      at::Tensor& sum = sums[part.places[p]];
      sum = wrap(results[p], group.members()[m].spec);
      meta_nowait(sum).change().pending = reduction;
    }
    under_way_.push_back(std::move(reduction));
  }
  return sums;
}

std::vector<at::Tensor> Reductions::begin_half(
    const MemberGroup& group, const std::vector<MemberGradient>& gradients) {
  const CallCause cause(kCause, &rules_.mesh);
  std::vector<at::Tensor> sums(gradients.size());
  for (const OfOneDtype& part : by_dtype(group, gradients)) {
    const auto moving = scatter(group, gradients, part);
    moving->wait();
    for (size_t p = 0; p < part.places.size(); ++p) {
      sums[part.places[p]] = moving->results()[p];
    }
  }
  return sums;
}

void Reductions::wait_for_all_but(size_t count) {
  while (under_way_.size() > count) {
    const auto first = std::move(under_way_.front());
    under_way_.pop_front();
    first->wait();
  }
}

}  // namespace tessera::detail::inline parallel_layer
