// New sharded tensors cut like others.
#include <sharded_tensor/ops/builtin_ops.h>
#include <tessera/sharded_tensor/create.h>

namespace tessera::sharded_tensor {

namespace {

ShardedTensorOptions options_like(
    const ShardedTensor& t, const LikeOptions& options) {
  ShardedTensorOptions result;
  result.dtype = options.dtype.value_or(t.dtype());
  const bool differentiable =
      c10::isFloatingType(*result.dtype) || c10::isComplexType(*result.dtype);
  result.requires_grad =
      options.requires_grad.value_or(t.requires_grad() && differentiable);
  result.pin_memory = t.is_pinned();
  result.process_group = options.process_group.value_or(t.process_group());
  return result;
}

// The user's implementation, or what `make` makes.
template <class F>
ShardedTensor made_like(
    const std::string& op, const std::vector<Value>& arguments,
    const LikeOptions& options, F make) {
  if (auto results = detail::run_user_op(op, arguments)) {
    return detail::only_result(op, *results);
  }
  const ShardedTensor& t = find_sharded_tensor(arguments);
  return make(t.sharding_spec(), t.sizes(), options_like(t, options));
}

}  // namespace

ShardedTensor empty_like(const ShardedTensor& t, const LikeOptions& options) {
  return made_like("aten::empty_like", {t}, options, empty);
}

ShardedTensor zeros_like(const ShardedTensor& t, const LikeOptions& options) {
  return made_like("aten::zeros_like", {t}, options, zeros);
}

ShardedTensor ones_like(const ShardedTensor& t, const LikeOptions& options) {
  return made_like("aten::ones_like", {t}, options, ones);
}

ShardedTensor full_like(
    const ShardedTensor& t, const c10::Scalar& value,
    const LikeOptions& options) {
  return made_like(
      "aten::full_like", {t, value}, options,
      [&](const auto& spec, const auto& sizes, const auto& how) {
        return full(spec, sizes, value, how);
      });
}

ShardedTensor rand_like(const ShardedTensor& t, const LikeOptions& options) {
  return made_like("aten::rand_like", {t}, options, rand);
}

ShardedTensor randn_like(const ShardedTensor& t, const LikeOptions& options) {
  return made_like("aten::randn_like", {t}, options, randn);
}

}  // namespace tessera::sharded_tensor
