#include <sharded_tensor/module/plain_gradient.h>

#include <ATen/ops/alias.h>
#include <ATen/ops/zeros.h>
#include <tessera/tensor/dtensor.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

namespace tessera::detail::inline sharded_tensor_layer {

namespace {

using torch::autograd::FunctionPreHook;
using torch::autograd::variable_list;

at::Tensor plain_value(const at::Tensor& gradient, const at::Tensor& leaf) {
  return spec(gradient).has_shard() ? full_tensor(gradient)
                                    : at::zeros(leaf.sizes(), leaf.options());
}

// Held by the leaf itself, so it may only refer to it weakly.
class PlainHook final : public FunctionPreHook {
 public:
  explicit PlainHook(const at::Tensor& leaf) : leaf_(leaf.getIntrusivePtr()) {}

  variable_list operator()(const variable_list& gradients) override {
    variable_list plain = gradients;
    auto leaf = leaf_.lock();
    if (leaf && !plain.empty() && is_dtensor(plain[0])) {
      const at::Tensor owner{std::move(leaf)};
      plain[0] = is_dtensor(owner) ? plain[0] : plain_value(plain[0], owner);
    }
    return plain;
  }

 private:
  c10::weak_intrusive_ptr<c10::TensorImpl> leaf_;
};

}  // namespace

void keep_gradient_plain(const at::Tensor& leaf) {
  if (!leaf.defined() || !leaf.requires_grad() || !leaf.is_leaf() ||
      is_dtensor(leaf)) {
    return;
  }
  auto& hooks = torch::autograd::impl::hooks(leaf);
  if (hooks.empty()) {
    // register_hook() would drop ours when it makes its list.
    torch::autograd::impl::create_cpp_hook(leaf);
  }
  if (dynamic_cast<const PlainHook*>(hooks.front().get()) == nullptr) {
    hooks.insert(hooks.begin(), std::make_unique<PlainHook>(leaf));
  }
}

at::Tensor with_plain_gradient(const at::Tensor& tensor) {
  if (!tensor.requires_grad()) {
    return tensor;
  }
  const at::Tensor other = at::alias(tensor);
  other.register_hook([like = tensor.detach()](const at::Tensor& gradient) {
    return is_dtensor(gradient) ? plain_value(gradient, like) : gradient;
  });
  return other;
}

}  // namespace tessera::detail::inline sharded_tensor_layer
