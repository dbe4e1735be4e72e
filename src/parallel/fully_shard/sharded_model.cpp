#include <parallel/fully_shard/sharded_model.h>

#include <algorithm>
#include <utility>

#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>
#include <modules/module_path.h>
#include <tensor/impl/wrap.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

namespace tessera::detail::inline parallel_layer {

namespace {

constexpr size_t kNone = SIZE_MAX;

int current_pass() {
  return torch::autograd::get_current_graph_task_id();
}

// Owns the model: it lives as long as one of its parameters.
struct Membership final : ParameterMember {
  Membership(std::shared_ptr<ShardedModel> of, size_t g, size_t m)
      : model(std::move(of)), group(g), member(m) {}
  at::Tensor gathered(const at::Tensor& parameter) override {
    return model->gathered(group, member, parameter);
  }
  void before_write(const at::Tensor&) override {
    model->before_write(group, member);
  }
  std::shared_ptr<ShardedModel> model;
  size_t group;
  size_t member;
};

std::shared_ptr<const ParameterUse> make_use(const GroupingRules& rules) {
  auto use = std::make_shared<ParameterUse>();
  use->name = "fully_shard";
  use->mesh_dim = rules.mesh_dim;
  use->plain_input = rules.options.plain_input;
  use->scales = true;
  return use;
}

}  // namespace

ShardedModel::ShardedModel(GroupingRules rules)
    : rules_(std::move(rules)), use_(make_use(rules_)), reductions_(rules_) {}

std::shared_ptr<ShardedModel> ShardedModel::make(
    GroupingRules rules, std::vector<GroupPlace> places) {
  const std::shared_ptr<ShardedModel> model(new ShardedModel(std::move(rules)));
  model->rules_.owner = model;
  for (GroupPlace& place : places) {
    const size_t g = model->groups_.size();
    model->groups_.emplace_back(
        std::move(place.path), g, std::move(place.members));
    MemberGroup& group = model->groups_.back();
    group.reshard_after_forward =
        model->rules_.options.reshard_after_forward.value_or(
            !group.path().empty());
    group.update(model->rules_);
    for (size_t m = 0; m < group.members().size(); ++m) {
      set_member(
          group.members()[m].parameter(),
          std::make_shared<Membership>(model, g, m));
    }
  }
  model->gathered_.resize(model->groups_.size());
  model->kept_.resize(model->groups_.size());
  return model;
}

at::Tensor ShardedModel::gathered(
    size_t group, size_t member, const at::Tensor& parameter) {
  MemberGroup& its = groups_[group];
  const bool in_backward = current_pass() != -1;
  if (last_ != group || !its.open || !its.is_filled() ||
      !meta_nowait(parameter).local.is_same(its.members()[member].shard)) {
    enter(group, in_backward);
  }
  const bool with_history = c10::GradMode::is_enabled();
  Gathered& taken = gathered_[group];
  if (with_history ? !has_right_history(group)
                   : taken.without_history.empty()) {
    make_gathered(group, with_history);
  }
  return with_history ? taken.with_history[member]
                      : taken.without_history[member];
}

void ShardedModel::enter(size_t group, bool in_backward) {
  MemberGroup& its = groups_[group];
  take_new_shards(group);
  if (in_backward) {
    end_pass_later();
  }
  if (in_backward ? !its.is_filled() : !its.open) {
    note(group, in_backward);
  }
  its.open = true;
  its.ahead = false;
  close_others(group, in_backward);
  bring(group);
  prefetch(in_backward ? backward_ : forward_);
  last_ = group;
}

// Programs that only evaluate begin another step when a group comes again.
void ShardedModel::note(size_t group, bool in_backward) {
  const auto& used = forward_.current();
  if (!in_backward && !c10::GradMode::is_enabled() &&
      std::find(used.begin(), used.end(), group) != used.end()) {
    forward_.end_step();
  }
  (in_backward ? backward_ : forward_).note(group);
}

// What was gathered from other shards, or is on its way, is of no use.
void ShardedModel::take_new_shards(size_t group) {
  if (groups_[group].has_new_shards()) {
    close(group);
    release(group);
    groups_[group].update(rules_);
  }
}

void ShardedModel::bring(size_t group) {
  wait_for(group);
  if (!groups_[group].is_filled()) {
    start(group);
    wait_for(group);
  }
}

void ShardedModel::wait_for(size_t group) {
  const int64_t buffered = groups_[group].wait();
  peak_bytes_ = std::max(peak_bytes_, bytes_ + buffered);
}

void ShardedModel::start(size_t group) {
  MemberGroup& its = groups_[group];
  take_new_shards(group);
  if (!its.has_memory()) {
    bytes_ += its.unsharded_bytes();
    peak_bytes_ = std::max(peak_bytes_, bytes_);
  }
  ++gathers_;
  its.start(rules_);
}

void ShardedModel::prefetch(const UseOrder& order) {
  for (const size_t g :
       order.next(static_cast<size_t>(rules_.options.prefetch))) {
    if (!groups_[g].is_arriving() && !groups_[g].is_filled()) {
      groups_[g].ahead = true;
      start(g);
    }
  }
}

bool ShardedModel::are_related(size_t a, size_t b) const {
  return is_within(groups_[a].path(), groups_[b].path()) ||
         is_within(groups_[b].path(), groups_[a].path());
}

// In a backward pass a group with a trainable member ends when its node runs.
void ShardedModel::close_others(size_t group, bool in_backward) {
  const std::vector<size_t> soon =
      in_backward ? std::vector<size_t>()
                  : forward_.next(static_cast<size_t>(rules_.options.prefetch));
  for (size_t g = 0; g < groups_.size(); ++g) {
    MemberGroup& its = groups_[g];
    const bool is_used =
        (its.open || its.has_memory()) && !its.ahead && !are_related(g, group);
    if (!is_used || std::find(soon.begin(), soon.end(), g) != soon.end() ||
        (in_backward && its.has_trainable_member())) {
      continue;
    }
    close(g);
    if (its.reshard_after_forward && !keeps_weights()) {
      release(g);
    }
  }
}

// Tensors with history are of one forward: the engine runs young nodes first,
// so that one of an earlier forward would have all reductions wait for it.
void ShardedModel::close(size_t group) {
  groups_[group].open = false;
  gathered_[group] = {};
  last_ = kNone;
}

void ShardedModel::release(size_t group) {
  MemberGroup& its = groups_[group];
  if (its.has_memory()) {
    wait_for(group);
    bytes_ -= its.unsharded_bytes();
    its.release();
  }
  its.ahead = false;
  last_ = kNone;
}

void ShardedModel::fill(size_t group) {
  const bool in_backward = current_pass() != -1;
  MemberGroup& its = groups_[group];
  if (in_backward) {
    end_pass_later();
    backward_.note(group);
    close_others(group, in_backward);
  }
  its.ahead = false;
  bring(group);
  if (in_backward) {
    prefetch(backward_);
  }
  last_ = kNone;
}

// The first call of a backward pass begins to gather what it will need first,
// while the last group, which is there, computes.
void ShardedModel::note_backward() {
  if (current_pass() != pass_) {
    end_pass_later();
    prefetch(backward_);
  }
}

bool ShardedModel::has_right_history(size_t group) const {
  const Gathered& taken = gathered_[group];
  const auto& members = groups_[group].members();
  if (taken.with_history.empty()) {
    return false;
  }
  for (size_t m = 0; m < members.size(); ++m) {
    if (members[m].needs_grad() != taken.needs_grad[m]) {
      return false;
    }
  }
  return true;
}

at::Tensor ShardedModel::wrap_member(const GroupMember& member) const {
  at::Tensor unsharded =
      wrap(member.unsharded->local(), member.unsharded->spec());
  const at::Tensor parameter = member.parameter();
  const auto style = parameter.defined() ? parameter_use(parameter) : nullptr;
  take_state(unsharded, {style ? style : use_, member.unsharded});
  return unsharded;
}

void ShardedModel::make_gathered(size_t group, bool with_history) {
  if (!rules_.options.mp_policy.param_dtype &&
      at::autocast::is_autocast_enabled(rules_.mesh.device_type())) {
    TORCH_WARN_ONCE(
        "fully_shard: autocast converts gathered parameters in each call, and "
        "autograd keeps what it makes; give mp_policy.param_dtype the dtype of "
        "autocast");
  }
  const c10::InferenceMode normal(false);
  const c10::AutoGradMode grad_mode(with_history);
  const MemberGroup& its = groups_[group];
  Gathered& taken = gathered_[group];
  std::vector<at::Tensor> made;
  for (const GroupMember& member : its.members()) {
    made.push_back(wrap_member(member));
  }
  if (!with_history) {
    taken.without_history = std::move(made);
    return;
  }
  std::vector<at::Tensor> leaves;
  taken.needs_grad.clear();
  for (const GroupMember& member : its.members()) {
    taken.needs_grad.push_back(member.needs_grad());
    leaves.push_back(member.needs_grad() ? member.parameter() : at::Tensor());
  }
  record_unshard(leaves, made, weak_from_this(), group);
  taken.with_history = std::move(made);
}

void ShardedModel::before_write(size_t group, size_t member) {
  const GroupMember& written = groups_[group].members()[member];
  TORCH_CHECK_VALUE(
      accumulating_ == 0 || !written.needs_grad(),
      "fully_shard: ", written.name,
      " is written while a FullyShard::Accumulate lives, and gradients of the "
      "step are not complete; end the Accumulate before the last backward() "
      "and call the optimizer's step() after it");
  if (groups_[group].has_memory()) {
    close(group);
    release(group);
  }
}

std::vector<size_t> ShardedModel::groups_at(
    const char* call, const std::string& path) const {
  std::vector<size_t> found;
  std::string all;
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (is_within(groups_[g].path(), path)) {
      found.push_back(g);
    }
    all += (all.empty() ? "\"" : ", \"") + groups_[g].path() + "\"";
  }
  TORCH_CHECK_VALUE(
      !found.empty(), call, ": no group lies at or below \"", path,
      "\"; groups are ", all);
  return found;
}

void ShardedModel::unshard(const std::string& path) {
  for (const size_t g : groups_at("FullyShard::unshard", path)) {
    if (!groups_[g].is_filled() && !groups_[g].is_arriving()) {
      groups_[g].ahead = true;
      start(g);
    }
  }
}

void ShardedModel::reshard(const std::string& path) {
  for (const size_t g : groups_at("FullyShard::reshard", path)) {
    close(g);
    release(g);
  }
}

// Asked for once in each pass; one that ended with an exception leaves nothing
// to be undone, since passes have numbers.
void ShardedModel::end_pass_later() {
  const int pass = current_pass();
  if (pass == -1 || pass == pass_) {
    return;
  }
  pass_ = pass;
  torch::autograd::Engine::get_default_engine().queue_callback(
      [model = weak_from_this()] {
        if (const auto alive = model.lock()) {
          alive->end_pass();
        }
      });
}

void ShardedModel::end_pass() {
  const c10::AutoGradMode no_grad(false);
  if (accumulating_ == 0) {
    reduce_left_over();
    keeping_weights_ = false;
  }
  reductions_.wait_for_all_but(0);
  for (size_t g = 0; g < groups_.size(); ++g) {
    close(g);
    if (!keeps_weights()) {
      release(g);
    }
  }
  forward_.end_step();
  backward_.end_step();
  pass_ = -1;
  if (accumulating_ == 0) {
    last_gathers_ = std::exchange(gathers_, 0);
    last_reductions_ = std::exchange(reductions_.begun, 0);
  }
}

}  // namespace tessera::detail::inline parallel_layer
