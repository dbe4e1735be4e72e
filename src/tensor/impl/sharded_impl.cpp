#include <tensor/impl/sharded_impl.h>

namespace tessera::detail::inline tensor_layer {

ShardedMeta::~ShardedMeta() = default;

void wait(const ShardedMeta& meta) {
  meta.pending->wait();
  meta.pending.reset();
}

}  // namespace tessera::detail::inline tensor_layer
