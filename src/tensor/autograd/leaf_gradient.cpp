#include <tensor/autograd/leaf_gradient.h>

#include <typeinfo>

#include <ATen/ops/zeros.h>
#include <comm/log/call_cause.h>
#include <tensor/checks/gradient_check.h>
#include <tensor/checks/strict_mode.h>
#include <tensor/impl/sharded_impl.h>
#include <tensor/state/replicated.h>
#include <tessera/tensor/dtensor.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

namespace tessera::detail::inline tensor_layer {

namespace {

using torch::autograd::FunctionPreHook;
using torch::autograd::variable_list;

// Fields of it are read instead of calling requires_grad(), is_leaf() and
// hooks(), which every call with gradients would pay for every argument.
torch::autograd::AutogradMeta* autograd_meta_of(const at::Tensor& t) {
  return static_cast<torch::autograd::AutogradMeta*>(
      t.unsafeGetTensorImpl()->autograd_meta());
}

// Returns the placements that a gradient is brought to.
Placements wanted_placements(
    const at::Tensor& gradient, const at::Tensor& leaf) {
  Placements wanted = spec_of(leaf).placements();
  if (const auto dim = meta_nowait(leaf).state().unreduced_dim) {
    const auto d = static_cast<size_t>(*dim);
    const Placement& arrived = spec_of(gradient).placements()[d];
    if (arrived == Partial(ReduceOp::kSum)) {
      wanted[d] = arrived;
    }
  }
  return wanted;
}

bool has_wanted_placements(const at::Tensor& gradient, const at::Tensor& leaf) {
  const Placements& arrived = spec_of(gradient).placements();
  return meta_nowait(leaf).state().unreduced_dim
             ? arrived == wanted_placements(gradient, leaf)
             : arrived == spec_of(leaf).placements();
}

// Tells at once what place_gradient() would find out for most gradients.
bool is_in_place(const at::Tensor& gradient, const at::Tensor& leaf) {
  if (!is_sharded(leaf) || !gradient.defined()) {
    return true;
  }
  return is_sharded(gradient) && !checks_gradients() &&
         (&spec_of(gradient) == &spec_of(leaf) ||
          has_wanted_placements(gradient, leaf));
}

at::Tensor redistribute_gradient(
    const at::Tensor& gradient, const Placements& target,
    const at::Tensor& leaf) {
  const DTensorSpec& wanted = spec_of(leaf);
  check_strict_gradient(meta_ready(gradient).spec, wanted);
  const CallCause cause(
      "gradient of a leaf", {}, CallCause::Reason::kImplied, &wanted.mesh());
  return redistribute(gradient, target);
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
  const auto check = [&](const at::Tensor& arrived, bool now) {
    if (now && checks_gradients()) {
      check_gradient(arrived, "the gradient of " + name_of(leaf));
    }
    return arrived;
  };
  check(sharded, moves);
  return check(
      moves ? redistribute_gradient(sharded, target, leaf) : sharded, last);
}

variable_list placed(
    const at::Tensor& gradient, const at::Tensor& leaf, bool last) {
  variable_list gradients;
  gradients.push_back(
      is_in_place(gradient, leaf) ? gradient
                                  : place_gradient(gradient, leaf, last));
  return gradients;
}

// Held by the leaf itself, so both hooks may only refer to it weakly.
class LeafHook : public FunctionPreHook {
 public:
  explicit LeafHook(const at::Tensor& leaf) : leaf_(leaf.getIntrusivePtr()) {}
  LeafHook(const LeafHook&) = delete;
  LeafHook& operator=(const LeafHook&) = delete;

  variable_list operator()(const variable_list& gradients) final {
    const at::Tensor owner = leaf();
    return owner.defined() && !gradients.empty() ? run(gradients, owner)
                                                 : gradients;
  }

 protected:
  /// Returns the leaf, or nothing where it is dead.
  at::Tensor leaf() const {
    auto alive = leaf_.lock();
    return alive ? at::Tensor(std::move(alive)) : at::Tensor();
  }

 private:
  virtual variable_list run(
      const variable_list& gradients, const at::Tensor& owner) = 0;
  c10::weak_intrusive_ptr<c10::TensorImpl> leaf_;
};

// On the node that accumulates.
class LastHook final : public LeafHook {
 public:
  using LeafHook::LeafHook;
  static void add(const at::Tensor& leaf) {
    const auto node = torch::autograd::impl::try_get_grad_accumulator(leaf);
    if (node && node->retains_grad_hooks().empty()) {
      node->add_retains_grad_hook(std::make_unique<LastHook>(leaf), 0);
    }
  }

 private:
  variable_list run(
      const variable_list& gradients, const at::Tensor& owner) override {
    return placed(gradients[0], owner, /*last=*/true);
  }
};

// Before all hooks of users. It runs those of a C++ list itself, where `list`
// is LibTorch's hook that does.
class FirstHook final : public LeafHook {
 public:
  FirstHook(const at::Tensor& leaf, std::unique_ptr<FunctionPreHook> list)
      : LeafHook(leaf), run_list_(std::move(list)) {}
  ~FirstHook() override {
    if (const at::Tensor owner = leaf(); owner.defined()) {
      LastHook::add(owner);
    }
  }

 private:
  variable_list run(
      const variable_list& gradients, const at::Tensor& owner) override {
    const auto& meta = *autograd_meta_of(owner);
    const bool last = meta.hooks_.size() == 1;
    if (!last) {
      LastHook::add(owner);
    }
    if (!run_list_ || !meta.cpp_hooks_list_ || meta.cpp_hooks_list_->empty()) {
      return placed(gradients[0], owner, last);
    }
    const variable_list results =
        (*run_list_)(placed(gradients[0], owner, /*last=*/false));
    return placed(results[0], owner, last);
  }

  std::unique_ptr<FunctionPreHook> run_list_;
};

// Then the engine may be running the hooks of the list.
bool is_in_backward() {
  return torch::autograd::get_current_graph_task_id() != -1;
}

bool is_first(const FunctionPreHook& hook) {
  return typeid(hook) == typeid(FirstHook);
}

}  // namespace

void keep_unreduced(const at::Tensor& leaf, std::optional<int64_t> mesh_dim) {
  meta_ready(leaf).change().unreduced_dim = mesh_dim;
}

// Note [Gradients of leaves]
// A gradient is brought to the leaf's placements first of all, so that hooks of
// users see it there, and again after them, for what they return. LibTorch runs
// the C++ hooks of a tensor by one hook for a list; on a leaf without hooks
// ours takes that one in, so that users' later C++ hooks run inside of it.
// Hooks that were there before ours run behind it, and a second one of ours
// behind them, on the node that accumulates: there LibTorch keeps the hooks
// that run after all of the tensor's and before autograd::grad() takes the
// gradient. Python's register_hook() drops all hooks of the tensor: when the
// first of ours is dropped, it leaves the second behind for what has run
// already.
void install_leaf_hook(const at::Tensor& t) {
  auto* meta = autograd_meta_of(t);
  if (meta == nullptr || !meta->requires_grad_ || meta->grad_fn_) {
    return;
  }
  auto& hooks = meta->hooks_;
  if (hooks.size() == 1 && is_first(*hooks.front())) {
    return;
  }
  if (hooks.empty()) {
    torch::autograd::impl::create_cpp_hook(t);
    hooks.front() = std::make_unique<FirstHook>(t, std::move(hooks.front()));
  } else if (!is_first(*hooks.front()) && !is_in_backward()) {
    hooks.insert(hooks.begin(), std::make_unique<FirstHook>(t, nullptr));
  }
  if (hooks.size() > 1 || !is_first(*hooks.front())) {
    LastHook::add(t);
  }
}

}  // namespace tessera::detail::inline tensor_layer
