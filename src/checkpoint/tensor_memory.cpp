#include <checkpoint/tensor_memory.h>

#include <ATen/core/Tensor.h>
#include <checkpoint/held_boxes.h>
#include <tessera/tensor/dtensor.h>

namespace tessera::detail::inline checkpoint_layer {

TensorMemory memory_of(const checkpoint::StateValue& value) {
  if (value.kind() != checkpoint::StateValue::Kind::kTensor ||
      !value.to_tensor().defined()) {
    return {};
  }
  const at::Tensor t = value.to_tensor().detach();
  TensorMemory memory{.text = tensor_meta("checkpoint::load", value).text};
  if (is_dtensor(t) && !spec(t).has_shard()) {
    return memory;
  }
  const at::Tensor local = is_dtensor(t) ? to_local(t) : t;
  memory.data = local.const_data_ptr();
  memory.strides = local.strides().vec();
  memory.text += local.is_conj() ? " conj" : "";
  memory.text += local.is_neg() ? " neg" : "";
  return memory;
}

}  // namespace tessera::detail::inline checkpoint_layer
