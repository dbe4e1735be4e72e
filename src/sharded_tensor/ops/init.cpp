// Values of sharded tensors, in place.
#include <cmath>

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <sharded_tensor/ops/builtin_ops.h>
#include <sharded_tensor/tensor/random_fill.h>
#include <tessera/comm/world.h>

namespace tessera::sharded_tensor {

namespace {

using detail::Distribution;

// The bound of a uniform distribution that keeps the variance of what flows
// forward: gain sqrt(3 / fan), gain^2 = 2 / (1 + a^2). Slope 0, sizes [8, 24]:
// sqrt(2) sqrt(3 / 24) = 0.5.
double kaiming_bound(at::IntArrayRef sizes, double a) {
  TORCH_CHECK_VALUE(
      sizes.size() >= 2, "kaiming_uniform_, rank ", rank(),
      ": the fan needs at least 2 dims; got ", sizes.size());
  const int64_t fan = c10::multiply_integers(sizes.slice(1));
  return std::sqrt(2 / (1 + a * a)) * std::sqrt(3 / static_cast<double>(fan));
}

// Fills every shard from LibTorch's generator.
template <class F>
void fill_locally(const ShardedTensor& tensor, F fill) {
  for (const Shard& shard : tensor.local_shards()) {
    if (shard.tensor.numel() > 0) {
      fill(shard.tensor);
    }
  }
}

void fill_uniformly(
    const char* call, const ShardedTensor& tensor, double a, double b,
    const FillOptions& options) {
  TORCH_CHECK_VALUE(
      a <= b, call, ", rank ", rank(),
      ": the lower bound must not exceed the upper; got ", a, " and ", b);
  const at::NoGradGuard no_grad;
  if (options.mode == InitMode::kGlobal) {
    const Distribution uniform{
        .kind = Distribution::Kind::kUniform, .a = a, .b = b};
    detail::fill_random(call, tensor, uniform, options.generator);
    return;
  }
  fill_locally(tensor, [&](const at::Tensor& shard) {
    shard.uniform_(a, b, options.generator);
  });
}

}  // namespace

ShardedTensor uniform_(
    const ShardedTensor& tensor, double a, double b,
    const FillOptions& options) {
  if (auto results = detail::run_user_op("aten::uniform_", {tensor, a, b})) {
    return detail::only_result("aten::uniform_", *results);
  }
  fill_uniformly("uniform_", tensor, a, b, options);
  return tensor;
}

ShardedTensor normal_(
    const ShardedTensor& tensor, double mean, double std,
    const FillOptions& options) {
  if (auto results =
          detail::run_user_op("aten::normal_", {tensor, mean, std})) {
    return detail::only_result("aten::normal_", *results);
  }
  TORCH_CHECK_VALUE(
      std >= 0, "normal_, rank ", rank(),
      ": the standard deviation must not be negative; got ", std);
  const at::NoGradGuard no_grad;
  if (options.mode == InitMode::kGlobal) {
    const Distribution normal{
        .kind = Distribution::Kind::kNormal, .a = mean, .b = std};
    detail::fill_random("normal_", tensor, normal, options.generator);
  } else {
    fill_locally(tensor, [&](const at::Tensor& shard) {
      shard.normal_(mean, std, options.generator);
    });
  }
  return tensor;
}

ShardedTensor constant_(const ShardedTensor& tensor, const c10::Scalar& value) {
  const at::NoGradGuard no_grad;
  return dispatch_one("aten::fill_.Scalar", {tensor, value});
}

ShardedTensor kaiming_uniform_(
    const ShardedTensor& tensor, double a, const FillOptions& options) {
  if (auto results =
          detail::run_user_op("aten::kaiming_uniform_", {tensor, a})) {
    return detail::only_result("aten::kaiming_uniform_", *results);
  }
  // On all ranks alike, also on those without shards.
  const double bound = kaiming_bound(tensor.sizes(), a);
  if (tensor.numel() == 0) {
    return tensor;
  }
  if (options.mode == InitMode::kGlobal) {
    fill_uniformly("kaiming_uniform_", tensor, -bound, bound, options);
    return tensor;
  }
  const at::NoGradGuard no_grad;
  fill_locally(tensor, [&](const at::Tensor& shard) {
    const double own = kaiming_bound(shard.sizes(), a);
    shard.uniform_(-own, own, options.generator);
  });
  return tensor;
}

}  // namespace tessera::sharded_tensor
