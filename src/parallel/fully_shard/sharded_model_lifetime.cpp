// How a model ends: its parameters are gone, or nothing but its own history
// holds them.
#include <algorithm>

#include <parallel/fully_shard/sharded_model.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

namespace tessera::detail::inline parallel_layer {

namespace {

// Tells whether the node of the gathered tensors is held by them alone, and
// they by their group.
bool is_held_by_group(const std::vector<at::Tensor>& with_history) {
  size_t of_node = 0;
  const at::Tensor* any = nullptr;
  for (const at::Tensor& t : with_history) {
    if (t.use_count() != 1) {
      return false;
    }
    if (t.grad_fn()) {
      ++of_node;
      any = &t;
    }
  }
  return any == nullptr || any->grad_fn().use_count() == of_node;
}

// Tells whether nothing holds the leaf but its accumulator, and that nothing
// but the node of its group.
bool is_held_by_node(const c10::weak_intrusive_ptr<c10::TensorImpl>& leaf) {
  if (leaf.use_count() != 1) {
    return false;
  }
  const auto alive = leaf.lock();
  const auto accumulator =
      torch::autograd::impl::try_get_grad_accumulator(at::Tensor(alive));
  return accumulator != nullptr && accumulator.use_count() == 2;
}

}  // namespace

// Tensors of the last forward lead to the parameters, through the history that
// they have, and belong to the model: it would keep itself alive.
bool ShardedModel::is_orphaned() const {
  for (size_t g = 0; g < groups_.size(); ++g) {
    const auto& members = groups_[g].members();
    const auto& with_history = gathered_[g].with_history;
    const bool gone = std::all_of(
        members.begin(), members.end(), [&](const GroupMember& member) {
          return member.leaf.expired() ||
                 (!with_history.empty() && is_held_by_node(member.leaf));
        });
    if (!gone || !is_held_by_group(with_history)) {
      return false;
    }
  }
  return true;
}

void ShardedModel::forget_parameters() {
  for (Gathered& taken : gathered_) {
    taken = {};
  }
  for (MemberGroup& group : groups_) {
    for (GroupMember& member : group.members()) {
      member.leaf.reset();
    }
  }
}

}  // namespace tessera::detail::inline parallel_layer
