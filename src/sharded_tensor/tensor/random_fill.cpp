#include <sharded_tensor/tensor/random_fill.h>

#include <ATen/ops/view_as_real.h>
#include <c10/util/Exception.h>
#include <comm/engine/random_counters.h>
#include <tensor/random/fill/fill.h>
#include <tensor/random/philox/philox_blocks.h>
#include <tessera/comm/world.h>

namespace tessera::detail::inline sharded_tensor_layer {

void fill_random(
    const char* call, const sharded_tensor::ShardedTensor& tensor,
    const Distribution& distribution,
    const std::optional<at::Generator>& generator) {
  TORCH_CHECK_VALUE(
      c10::isFloatingType(tensor.dtype()) || c10::isComplexType(tensor.dtype()),
      call, ", rank ", rank(), ": the dtype must be floating point; got ",
      tensor.dtype());
  RandomCounters& counters = *init().random_counters();
  const RandomOffset offset = generator && generator->defined()
                                  ? counters.next(*generator)
                                  : counters.next();
  const PhiloxKey key = key_of(offset);
  for (const sharded_tensor::Shard& shard : tensor.local_shards()) {
    const GlobalIndexRanges ranges(tensor.sizes(), shard.metadata.box());
    shard.tensor.copy_(draw_values(
        ranges, tensor.dtype(), shard.tensor.device(), distribution, key));
  }
}

}  // namespace tessera::detail::inline sharded_tensor_layer
