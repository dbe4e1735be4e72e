// Sharded tensors of given or random values.
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <sharded_tensor/tensor/random_fill.h>
#include <sharded_tensor/tensor/state.h>
#include <tessera/comm/world.h>
#include <tessera/sharded_tensor/create.h>

namespace tessera::sharded_tensor {

namespace {

// Makes a tensor and fills its shards; only then other ranks may read them.
template <class F>
ShardedTensor filled(
    const char* call, const ShardingSpec& spec,
    const std::vector<int64_t>& sizes, const ShardedTensorOptions& options,
    F fill) {
  return ShardedTensor(detail::create_published(
      call, options.init_remote, detail::all_ranks(), [&] {
        auto state = detail::new_state(spec, sizes, options, call);
        const at::NoGradGuard no_grad;
        fill(ShardedTensor(state));
        return state;
      }));
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
  return filled("full", spec, sizes, options, [&](const ShardedTensor& tensor) {
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
  return filled("rand", spec, sizes, options, [&](const ShardedTensor& tensor) {
    detail::fill_random(
        "rand", tensor, {.kind = detail::Distribution::Kind::kUniform});
  });
}

ShardedTensor randn(
    const ShardingSpec& spec, const std::vector<int64_t>& sizes,
    const ShardedTensorOptions& options) {
  return filled(
      "randn", spec, sizes, options, [&](const ShardedTensor& tensor) {
        detail::fill_random(
            "randn", tensor, {.kind = detail::Distribution::Kind::kNormal});
      });
}

}  // namespace tessera::sharded_tensor
