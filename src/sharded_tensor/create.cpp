// Sharded tensors of given or random values.
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <sharded_tensor/random_fill.h>
#include <sharded_tensor/state.h>
#include <tessera/comm/world.h>
#include <tessera/sharded_tensor/create.h>

namespace tessera::sharded_tensor {

namespace {

// Makes a tensor, fills its shards, and only then lets other ranks read them.
template <class F>
ShardedTensor filled(
    const ShardingSpec& spec, const std::vector<int64_t>& sizes,
    ShardedTensorOptions options, F fill) {
  const bool init_remote = std::exchange(options.init_remote, false);
  ShardedTensor tensor(spec, sizes, options);
  const at::NoGradGuard no_grad;
  fill(tensor);
  if (init_remote) {
    detail::publish(*tensor.state());
  }
  return tensor;
}

}  // namespace

ShardedTensor empty(
    const ShardingSpec& spec, const std::vector<int64_t>& sizes,
    const ShardedTensorOptions& options) {
  return ShardedTensor(spec, sizes, options);
}

ShardedTensor full(
    const ShardingSpec& spec, const std::vector<int64_t>& sizes,
    const c10::Scalar& value, const ShardedTensorOptions& options) {
  return filled(spec, sizes, options, [&](const ShardedTensor& tensor) {
    for (const Shard& shard : tensor.local_shards()) {
      shard.tensor.fill_(value);
    }
  });
}

ShardedTensor zeros(
    const ShardingSpec& spec, const std::vector<int64_t>& sizes,
    const ShardedTensorOptions& options) {
  return full(spec, sizes, 0, options);
}

ShardedTensor ones(
    const ShardingSpec& spec, const std::vector<int64_t>& sizes,
    const ShardedTensorOptions& options) {
  return full(spec, sizes, 1, options);
}

ShardedTensor rand(
    const ShardingSpec& spec, const std::vector<int64_t>& sizes,
    const ShardedTensorOptions& options) {
  return filled(spec, sizes, options, [&](const ShardedTensor& tensor) {
    detail::fill_random(
        "rand", tensor, {.kind = detail::Distribution::Kind::kUniform});
  });
}

ShardedTensor randn(
    const ShardingSpec& spec, const std::vector<int64_t>& sizes,
    const ShardedTensorOptions& options) {
  return filled(spec, sizes, options, [&](const ShardedTensor& tensor) {
    detail::fill_random(
        "randn", tensor, {.kind = detail::Distribution::Kind::kNormal});
  });
}

}  // namespace tessera::sharded_tensor
