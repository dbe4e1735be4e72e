// Comparison of sharded tensors, on whatever ranks their shards are.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <c10/util/Exception.h>
#include <sharded_tensor/ops/builtin_ops.h>
#include <sharded_tensor/tensor/agreement.h>
#include <sharded_tensor/tensor/state.h>
#include <tessera/comm/world.h>

namespace tessera::detail::inline sharded_tensor_layer {

using sharded_tensor::ShardedTensor;

namespace {

// Whether f holds for the shards of all ranks. All of them know sizes, dtypes
// and cuts, so they take the same way here.
template <class F>
bool all_shards(
    Agreement& agreement, const ShardedTensor& a, const ShardedTensor& b, F f) {
  const at::NoGradGuard no_grad;
  agreement.check([&] {
    check_data("comparison", *a.state()->layout, *b.state()->layout);
  });
  agreement.equal(
      "tensors", to_string(a.metadata()) + " and " + to_string(b.metadata()));
  agreement.reach();
  if (a.sizes() != b.sizes() || a.dtype() != b.dtype()) {
    return false;
  }
  const bool alike = *a.state()->layout == *b.state()->layout;
  const ShardedTensor moved = alike ? b : b.resharded(a.sharding_spec());
  bool holds = true;
  for (size_t i = 0; i < a.local_shards().size(); ++i) {
    holds =
        holds && f(a.local_shards()[i].tensor, moved.local_shards()[i].tensor);
  }
  const at::Tensor agreed = at::full({1}, holds ? 1 : 0, at::kInt);
  a.process_group().communicator().all_reduce(agreed, ReduceOp::kMin);
  return *agreed.const_data_ptr<int32_t>() == 1;
}

}  // namespace

bool all_equal(const ShardedTensor& a, const ShardedTensor& b) {
  auto agreement = begin_agreement("equal", a.process_group());
  return all_shards(
      agreement, a, b,
      [](const at::Tensor& x, const at::Tensor& y) { return at::equal(x, y); });
}

bool all_close(
    const ShardedTensor& a, const ShardedTensor& b, const Tolerance& t) {
  auto agreement = begin_agreement("allclose", a.process_group());
  agreement.check([&] {
    TORCH_CHECK_VALUE(
        t.rtol >= 0 && t.atol >= 0, "allclose, rank ", rank(),
        ": tolerances must not be negative; got rtol ", t.rtol, ", atol ",
        t.atol);
  });
  return all_shards(
      agreement, a, b, [&](const at::Tensor& x, const at::Tensor& y) {
        return at::allclose(x, y, t.rtol, t.atol, t.equal_nan);
      });
}

}  // namespace tessera::detail::inline sharded_tensor_layer

namespace tessera::sharded_tensor {

namespace {

bool answer(const char* op, const std::vector<Value>& arguments) {
  const std::vector<Value> results = dispatch(op, arguments);
  const auto* value =
      results.size() == 1 ? std::get_if<c10::IValue>(&results[0]) : nullptr;
  TORCH_CHECK_TYPE(
      value != nullptr && value->isBool(), op, ", rank ", rank(),
      ": the implementation must return true or false");
  return value->toBool();
}

}  // namespace

bool equal(const ShardedTensor& a, const ShardedTensor& b) {
  return answer("aten::equal", {a, b});
}

bool allclose(
    const ShardedTensor& a, const ShardedTensor& b, double rtol, double atol,
    bool equal_nan) {
  return answer("aten::allclose", {a, b, rtol, atol, equal_nan});
}

}  // namespace tessera::sharded_tensor
