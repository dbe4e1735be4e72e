// Copies of sharded tensors, and in what they share memory.
#include <ATen/core/grad_mode.h>
#include <base/text.h>
#include <c10/util/Exception.h>
#include <sharded_tensor/ops/builtin_ops.h>
#include <sharded_tensor/tensor/state.h>
#include <tessera/comm/world.h>
#include <tessera/sharded_tensor/conversion.h>

namespace tessera::detail::inline sharded_tensor_layer {

using sharded_tensor::ShardedTensor;

ShardedTensor copy_shards(const ShardedTensor& to, const ShardedTensor& from) {
  TORCH_CHECK_VALUE(
      to.sizes() == from.sizes(), "copy_, rank ", rank(),
      ": the sizes must be equal; got [", base::join(to.sizes(), ", "),
      "] and [", base::join(from.sizes(), ", "), "]");
  check_writable(to);
  const bool alike = *to.state()->layout == *from.state()->layout;
  const ShardedTensor source =
      alike ? from : from.resharded(to.sharding_spec());
  for (size_t i = 0; i < to.local_shards().size(); ++i) {
    to.local_shards()[i].tensor.copy_(source.local_shards()[i].tensor);
  }
  to.state()->anchor.copy_(source.state()->anchor);
  note_write(to);
  return to;
}

}  // namespace tessera::detail::inline sharded_tensor_layer

namespace tessera::sharded_tensor {

ShardedTensor clone(const ShardedTensor& tensor) {
  return dispatch_one("aten::clone", {tensor});
}

ShardedTensor detach(const ShardedTensor& tensor) {
  return dispatch_one("aten::detach", {tensor});
}

ShardedTensor copy_(const ShardedTensor& to, const ShardedTensor& from) {
  return dispatch_one("aten::copy_", {to, from});
}

ShardedTensor requires_grad_(const ShardedTensor& tensor, bool value) {
  if (auto results =
          detail::run_user_op("aten::requires_grad_", {tensor, value})) {
    return detail::only_result("aten::requires_grad_", *results);
  }
  detail::ShardedTensorState& state = *tensor.state();
  if (state.dtensor.defined()) {
    auto remote = state.remote;
    state = *from_dtensor(state.dtensor.set_requires_grad(value), *state.group)
                 .state();
    state.remote = std::move(remote);
    return tensor;
  }
  for (const Shard& shard : state.local_shards) {
    shard.tensor.set_requires_grad(value);
  }
  state.anchor.set_requires_grad(value);
  state.metadata.tensor_properties.requires_grad = value;
  return tensor;
}

namespace {

ShardedTensor in_dtype(
    const ShardedTensor& tensor, const Value& other, c10::ScalarType dtype) {
  if (auto results = detail::run_user_op("aten::type_as", {tensor, other})) {
    return detail::only_result("aten::type_as", *results);
  }
  return tensor.to(dtype);
}

}  // namespace

ShardedTensor type_as(const ShardedTensor& tensor, const at::Tensor& other) {
  TORCH_CHECK_VALUE(
      other.defined(), "type_as, rank ", rank(), ": the tensor is undefined");
  return in_dtype(tensor, other, other.scalar_type());
}

ShardedTensor type_as(const ShardedTensor& tensor, const ShardedTensor& other) {
  return in_dtype(tensor, other, other.dtype());
}

}  // namespace tessera::sharded_tensor
