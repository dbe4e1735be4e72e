// Elementwise operators by name.
#include <ATen/ScalarOps.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <sharded_tensor/ops/builtin_ops.h>
#include <sharded_tensor/tensor/random_fill.h>
#include <sharded_tensor/tensor/state.h>
#include <tessera/comm/world.h>

namespace tessera::detail::inline sharded_tensor_layer {

using sharded_tensor::ShardedTensor;

ShardedTensor drop_out(const ShardedTensor& t, double p, bool training) {
  TORCH_CHECK_VALUE(
      p >= 0 && p <= 1, "dropout, rank ", rank(),
      ": the probability must be from 0 to 1; got ", p);
  if (!training || p == 0) {
    return t;
  }
  const ShardedTensor mask =
      sharded_tensor::empty_like(t, {.requires_grad = false});
  {
    const at::NoGradGuard no_grad;
    fill_random(
        "dropout", mask, {.kind = Distribution::Kind::kBernoulli, .a = 1 - p});
    if (p < 1) {
      sharded_tensor::div_(mask, 1 - p);
    }
  }
  return sharded_tensor::mul(t, mask);
}

}  // namespace tessera::detail::inline sharded_tensor_layer

namespace tessera::sharded_tensor {

namespace {

// A number that comes first, as LibTorch's own operators take it: it does not
// change the dtype.
Value as_tensor(const Value& value) {
  const auto* plain = std::get_if<c10::IValue>(&value);
  if (plain == nullptr || !plain->isScalar()) {
    return value;
  }
  return c10::IValue(at::native::wrapped_scalar_tensor(plain->toScalar()));
}

// The overload by what comes second; finding it by all arguments takes longer
// than to add.
ShardedTensor binary(const char* op, const Value& a, const Value& b) {
  const auto* plain = std::get_if<c10::IValue>(&b);
  const bool number = plain != nullptr && plain->isScalar();
  return dispatch_one(
      std::string(op) + (number ? ".Scalar" : ".Tensor"), {as_tensor(a), b});
}

}  // namespace

ShardedTensor add(const Value& a, const Value& b) {
  return binary("aten::add", a, b);
}
ShardedTensor sub(const Value& a, const Value& b) {
  return binary("aten::sub", a, b);
}
ShardedTensor mul(const Value& a, const Value& b) {
  return binary("aten::mul", a, b);
}
ShardedTensor div(const Value& a, const Value& b) {
  return binary("aten::div", a, b);
}
ShardedTensor add_(const ShardedTensor& a, const Value& b) {
  return binary("aten::add_", a, b);
}
ShardedTensor sub_(const ShardedTensor& a, const Value& b) {
  return binary("aten::sub_", a, b);
}
ShardedTensor mul_(const ShardedTensor& a, const Value& b) {
  return binary("aten::mul_", a, b);
}
ShardedTensor div_(const ShardedTensor& a, const Value& b) {
  return binary("aten::div_", a, b);
}
ShardedTensor operator+(const ShardedTensor& a, const Value& b) {
  return add(a, b);
}
ShardedTensor operator-(const ShardedTensor& a, const Value& b) {
  return sub(a, b);
}
ShardedTensor operator*(const ShardedTensor& a, const Value& b) {
  return mul(a, b);
}
ShardedTensor operator/(const ShardedTensor& a, const Value& b) {
  return div(a, b);
}
ShardedTensor gelu(const ShardedTensor& t) {
  return dispatch_one("aten::gelu", {t});
}
ShardedTensor relu(const ShardedTensor& t) {
  return dispatch_one("aten::relu", {t});
}
ShardedTensor tanh(const ShardedTensor& t) {
  return dispatch_one("aten::tanh", {t});
}
ShardedTensor nan_to_num(const ShardedTensor& t) {
  return dispatch_one("aten::nan_to_num", {t});
}
ShardedTensor dropout(const ShardedTensor& t, double p, bool training) {
  return dispatch_one("aten::dropout", {t, p, training});
}
ShardedTensor masked_fill(
    const ShardedTensor& t, const Value& mask, const c10::Scalar& value) {
  return dispatch_one("aten::masked_fill.Scalar", {t, mask, value});
}

}  // namespace tessera::sharded_tensor
