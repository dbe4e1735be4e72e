#include <typeinfo>

#include <ATen/ops/zeros.h>
#include <comm/call_cause.h>
#include <tensor/gradient_check.h>
#include <tensor/leaf_gradient.h>
#include <tensor/movement.h>
#include <tensor/strict.h>
#include <tensor/ways.h>
#include <tessera/tensor/dtensor.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

namespace tessera::detail {

namespace {

using torch::autograd::FunctionPreHook;

// Returns the placements that a gradient is brought to.
Placements wanted_placements(
    const at::Tensor& gradient, const at::Tensor& leaf) {
  Placements wanted = spec_of(leaf).placements();
  if (const auto dim = moving_meta_of(leaf).addends_dim) {
    const auto d = static_cast<size_t>(*dim);
    const Placement& arrived = spec_of(gradient).placements()[d];
    if (arrived == Partial(ReduceOp::kSum)) {
      wanted[d] = arrived;
    }
  }
  return wanted;
}

// Tells at once what place_gradient() would find out for most gradients.
bool is_in_place(const at::Tensor& gradient, const at::Tensor& leaf) {
  return is_sharded(gradient) && !checks_gradients() &&
         (&spec_of(gradient) == &spec_of(leaf) ||
          spec_of(gradient).placements() == wanted_placements(gradient, leaf));
}

// A gradient of other placements is compared before it moves, since moving
// hides which rank it came from; one that arrives, once, at the last hook.
at::Tensor place_gradient(
    const at::Tensor& gradient, const at::Tensor& leaf, bool last) {
  const DTensorSpec& wanted = spec_of(leaf);
  // ATen's own formulas make plain tensors, equal on all ranks, and zeros that
  // have no memory.
  const at::Tensor plain = gradient._is_zerotensor()
                               ? at::zeros(gradient.sizes(), gradient.options())
                               : gradient;
  const at::Tensor sharded =
      is_sharded(gradient)
          ? gradient
          : from_local(plain, wanted.mesh(), replicated(wanted.mesh()));
  const Placements target = wanted_placements(sharded, leaf);
  const bool moves = spec_of(sharded).placements() != target;
  if (checks_gradients() && (moves || last)) {
    check_gradient(sharded, "the gradient of " + name_of(leaf));
  }
  if (!moves) {
    return sharded;
  }
  check_strict_gradient(meta_of(sharded).spec, wanted);
  const CallCause cause(
      "gradient of a leaf", {}, CallCause::Reason::kImplied, &wanted.mesh());
  return redistribute(sharded, target);
}

// Tells whether a tensor has hooks beside ours and the list of C++ hooks that
// we make.
bool has_other_hooks(const at::Tensor& leaf) {
  const auto* meta = torch::autograd::impl::get_autograd_meta(leaf);
  return meta->hooks_.size() != 2 || !meta->cpp_hooks_list_ ||
         !meta->cpp_hooks_list_->empty();
}

void add_last_hook(const at::Tensor& leaf);

// Brings a leaf's gradient to the leaf's placements. Held by the leaf itself,
// so it may only refer to it weakly.
class PlacementHook final : public FunctionPreHook {
 public:
  PlacementHook(const at::Tensor& leaf, bool last)
      : leaf_(leaf.getIntrusivePtr()), last_(last) {}
  ~PlacementHook() override {
    if (auto leaf = leaf_.lock(); leaf && !last_) {
      add_last_hook(at::Tensor(std::move(leaf)));
    }
  }
  PlacementHook(const PlacementHook&) = delete;
  PlacementHook& operator=(const PlacementHook&) = delete;

  torch::autograd::variable_list operator()(
      const torch::autograd::variable_list& gradients) override {
    auto leaf = leaf_.lock();
    if (!leaf || gradients.empty() || !gradients[0].defined()) {
      return gradients;
    }
    const at::Tensor owner{std::move(leaf)};
    const bool last = last_ || !has_other_hooks(owner);
    if (!last) {
      add_last_hook(owner);
    }
    if (!is_sharded(owner) || is_in_place(gradients[0], owner)) {
      return gradients;
    }
    torch::autograd::variable_list placed = gradients;
    placed[0] = place_gradient(placed[0], owner, last);
    return placed;
  }

 private:
  c10::weak_intrusive_ptr<c10::TensorImpl> leaf_;
  bool last_;
};

void add_last_hook(const at::Tensor& leaf) {
  const auto node = torch::autograd::impl::try_get_grad_accumulator(leaf);
  if (node && node->retains_grad_hooks().empty()) {
    node->add_retains_grad_hook(
        std::make_unique<PlacementHook>(leaf, /*last=*/true), 0);
  }
}

bool is_ours(const std::unique_ptr<FunctionPreHook>& hook) {
  const FunctionPreHook& known = *hook;
  return typeid(known) == typeid(PlacementHook);
}

}  // namespace

void keep_addends(const at::Tensor& leaf, std::optional<int64_t> mesh_dim) {
  meta_of(leaf).addends_dim = mesh_dim;
}

// Note [Gradients of leaves]
// The hook is the first of the tensor's, so that those of users see a gradient
// in the leaf's placements: C++'s register_hook() would drop it when it makes
// its list, so that list is made here, empty. Where a tensor has other hooks, a
// second one follows what they return, on the node that accumulates: there
// LibTorch keeps the hooks that run after all of the tensor's and before
// autograd::grad() takes the gradient. Python's register_hook() drops all hooks
// of the tensor: the first one leaves the second when it is dropped.
void watch_leaf(const at::Tensor& t) {
  if (!t.requires_grad() || !t.is_leaf()) {
    return;
  }
  auto& hooks = torch::autograd::impl::hooks(t);
  if (hooks.empty()) {
    torch::autograd::impl::create_cpp_hook(t);
  }
  if (!is_ours(hooks.front())) {
    hooks.insert(
        hooks.begin(), std::make_unique<PlacementHook>(t, /*last=*/false));
  }
  if (has_other_hooks(t)) {
    add_last_hook(t);
  }
}

}  // namespace tessera::detail
