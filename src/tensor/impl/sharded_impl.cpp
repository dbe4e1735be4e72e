#include <tensor/impl/sharded_impl.h>

namespace tessera::detail {

ShardedMeta::~ShardedMeta() = default;

void settle(const ShardedMeta& meta) {
  meta.pending->settle();
  meta.pending.reset();
}

}  // namespace tessera::detail
