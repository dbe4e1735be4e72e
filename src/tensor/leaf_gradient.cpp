#include <comm/call_cause.h>
#include <tensor/strict.h>
#include <tensor/ways.h>
#include <tessera/tensor/dtensor.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

namespace tessera::detail {

namespace {

// Brings a leaf's gradient to the leaf's placements. Held by the leaf itself,
// so it may only refer to it weakly.
class PlacementHook final : public torch::autograd::FunctionPreHook {
 public:
  explicit PlacementHook(const at::Tensor& leaf)
      : leaf_(leaf.getIntrusivePtr()) {}

  torch::autograd::variable_list operator()(
      const torch::autograd::variable_list& gradients) override {
    torch::autograd::variable_list placed = gradients;
    auto leaf = leaf_.lock();
    if (!leaf || placed.empty() || !placed[0].defined()) {
      return placed;
    }
    const at::Tensor owner{std::move(leaf)};
    if (!is_sharded(owner)) {
      return placed;
    }
    const DTensorSpec& wanted = spec_of(owner);
    at::Tensor& gradient = placed[0];
    if (!is_sharded(gradient)) {
      // ATen's own formulas make plain tensors, equal on all ranks.
      gradient = from_local(
          gradient, wanted.mesh(),
          Placements(wanted.placements().size(), Replicate()));
    }
    if (spec_of(gradient).placements() != wanted.placements()) {
      check_strict_gradient(meta_of(gradient).spec, wanted);
      const CallCause cause(
          "gradient of a leaf", {}, CallCause::Reason::kImplied,
          &wanted.mesh());
      gradient = redistribute(gradient, wanted.placements());
    }
    return placed;
  }

 private:
  c10::weak_intrusive_ptr<c10::TensorImpl> leaf_;
};

bool holds_ours(
    const std::vector<std::unique_ptr<torch::autograd::FunctionPreHook>>&
        hooks) {
  for (const auto& hook : hooks) {
    if (dynamic_cast<const PlacementHook*>(hook.get()) != nullptr) {
      return true;
    }
  }
  return false;
}

}  // namespace

// The tensor's own hooks serve autograd::grad() too, but a user's first
// register_hook() drops them; those of the node that accumulates run after the
// user's, and live as long as the graph.
void watch_leaf(const at::Tensor& t) {
  if (!t.requires_grad() || !t.is_leaf()) {
    return;
  }
  auto& hooks = torch::autograd::impl::hooks(t);
  if (!holds_ours(hooks)) {
    hooks.push_back(std::make_unique<PlacementHook>(t));
  }
  const auto node = torch::autograd::impl::try_get_grad_accumulator(t);
  if (node && !holds_ours(node->pre_hooks())) {
    node->add_pre_hook(std::make_unique<PlacementHook>(t));
  }
}

}  // namespace tessera::detail
