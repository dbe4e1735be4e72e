// What LibTorch keeps per unusual tensor, in all supported versions: the part
// of torch_compat.h that wrappers need, which costs no header of autograd.
#pragma once

namespace tessera::detail::inline tensor_layer {

/// Removes from an ExtraMeta what belongs to one tensor.
template <class Meta>
void forget_tensor(Meta& meta) {
  meta.backend_meta_.reset();
  if constexpr (requires { meta.named_tensor_meta_; }) {
    meta.named_tensor_meta_.reset();
  }
  if constexpr (requires { meta.fake_device_; }) {
    meta.fake_device_.reset();
    meta.fake_tensor_mode_.reset();
  }
}

}  // namespace tessera::detail::inline tensor_layer
