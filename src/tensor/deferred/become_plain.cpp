#include <tensor/deferred/become_plain.h>

#include <torch/csrc/autograd/variable.h>

namespace tessera::detail::inline tensor_layer {

// As set_data() does, which does not know tensors of Meta to be like others.
void become_plain(const at::Tensor& deferred, const at::Tensor& values) {
  if (auto* meta = torch::autograd::impl::get_autograd_meta(deferred)) {
    meta->grad_accumulator_.reset();  // it expects gradients of Meta
  }
  deferred.unsafeGetTensorImpl()->shallow_copy_from(values.getIntrusivePtr());
}

}  // namespace tessera::detail::inline tensor_layer
