#include <parallel/fully_shard/member_group.h>

#include <algorithm>
#include <map>

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <comm/log/call_cause.h>
#include <modules/module_path.h>

namespace tessera::detail::inline parallel_layer {

namespace {

SpecPtr unsharded_spec(const DTensorSpec& spec, const GroupingRules& rules) {
  Placements placements = spec.placements();
  placements[static_cast<size_t>(rules.mesh_dim)] = Replicate();
  const auto& dtype = rules.options.mp_policy.param_dtype;
  const SpecPtr unsharded = spec.with_placements(placements);
  return dtype && c10::isFloatingType(spec.dtype())
             ? unsharded->with_dtype(*dtype)
             : unsharded;
}

}  // namespace

MemberGroup::MemberGroup(
    std::string path, size_t number, std::vector<GroupMember> members)
    : path_(std::move(path)), number_(number), members_(std::move(members)) {}

std::string MemberGroup::names_of(const std::vector<size_t>& members) const {
  std::string text = "'" + path_ + "' {";
  for (const size_t m : members) {
    const std::string& name = members_[m].name;
    const size_t begin = path_.empty() ? 0 : path_.size() + 1;
    text += (text.back() == '{' ? "" : ", ") +
            (is_within(name, path_) ? name.substr(begin) : name);
  }
  return text + "}";
}

bool MemberGroup::has_trainable_member() const {
  return std::any_of(
      members_.begin(), members_.end(),
      [](const GroupMember& member) { return member.needs_grad(); });
}

bool MemberGroup::has_new_shards() const {
  return std::any_of(
      members_.begin(), members_.end(), [](const GroupMember& member) {
        const at::Tensor parameter = member.parameter();
        return parameter.defined() && is_sharded(parameter) &&
               !meta_ready(parameter).local.is_same(member.shard);
      });
}

void MemberGroup::update(const GroupingRules& rules) {
  bool changed = false;
  for (GroupMember& member : members_) {
    const at::Tensor parameter = member.parameter();
    if (parameter.defined() && is_sharded(parameter)) {
      const ShardedMeta& meta = meta_ready(parameter);
      if (!meta.local.is_same(member.shard)) {
        member.shard = meta.local;
        member.spec = meta.spec;
        member.unsharded = nullptr;
      }
    }
    if (!member.unsharded) {
      changed = true;
      const SpecPtr unsharded = unsharded_spec(*member.spec, rules);
      member.unsharded = std::make_shared<UnshardedParameter>(
          member.shard,
          UnshardedParameter::Place{
              unsharded, member.spec, number_,
              rules.options.mp_policy.param_dtype.has_value(), rules.owner});
    }
  }
  if (changed) {
    gatherings_.clear();
  }
}

void MemberGroup::plan(const GroupingRules& rules) {
  std::map<c10::ScalarType, std::vector<size_t>> by_dtype;
  for (size_t m = 0; m < members_.size(); ++m) {
    by_dtype[members_[m].unsharded->spec()->dtype()].push_back(m);
  }
  for (const auto& [dtype, members] : by_dtype) {
    std::vector<GroupItem> items;
    for (const size_t m : members) {
      items.push_back({members_[m].spec, members_[m].unsharded->spec()});
    }
    gatherings_.push_back(
        {GroupPlan::make(
             GroupMoveKind::kAllGather, rules.mesh_dim, std::move(items), dtype,
             "gather " + names_of(members)),
         members});
  }
}

bool MemberGroup::is_filled() const {
  return has_memory_ && moving_.empty() &&
         std::all_of(
             members_.begin(), members_.end(), [](const GroupMember& member) {
               return member.unsharded && member.unsharded->is_filled();
             });
}

void MemberGroup::start(const GroupingRules& rules) {
  if (gatherings_.empty()) {
    plan(rules);
  }
  const c10::InferenceMode normal(false);
  const c10::AutoGradMode no_grad(false);
  at::AutoDispatchBelowADInplaceOrView below;
  const CallCause cause("fully_shard: gather", &rules.mesh);
  has_memory_ = true;
  for (const Gathering& gathering : gatherings_) {
    std::vector<at::Tensor> shards;
    std::vector<at::Tensor> results;
    std::vector<std::shared_ptr<UnshardedParameter>> coming;
    for (const size_t m : gathering.members) {
      coming.push_back(members_[m].unsharded);
      coming.back()->begin_fill();
      shards.push_back(members_[m].shard);
      results.push_back(members_[m].unsharded->local());
    }
    const auto make_room = [coming] {
      for (const auto& parameter : coming) {
        parameter->make_room();
      }
    };
    moving_.push_back(start_group(
        gathering.plan, shards, std::move(results), Operands::kStay,
        make_room));
  }
  ++last_gathers;
}

int64_t MemberGroup::wait() {
  const at::AutoDispatchBelowADInplaceOrView below;
  const auto moving = std::exchange(moving_, {});
  int64_t buffered = 0;
  for (const auto& group : moving) {
    buffered += group->buffered_bytes();
    group->wait();
  }
  if (!moving.empty()) {
    for (const GroupMember& member : members_) {
      member.unsharded->end_fill();
    }
  }
  return buffered;
}

void MemberGroup::release() {
  wait();
  for (const GroupMember& member : members_) {
    if (member.unsharded) {
      member.unsharded->release();
    }
  }
  has_memory_ = false;
}

int64_t MemberGroup::unsharded_bytes() const {
  int64_t bytes = 0;
  for (const GroupMember& member : members_) {
    bytes += member.unsharded ? member.unsharded->bytes() : 0;
  }
  return bytes;
}

}  // namespace tessera::detail::inline parallel_layer
