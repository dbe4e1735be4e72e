#include <tensor/impl/sharded_impl.h>

namespace tessera::detail::inline tensor_layer {

const MetaState ShardedMeta::kUnchanged;

ShardedMeta::~ShardedMeta() = default;

MetaState& ShardedMeta::change() const {
  if (!state_) {
    state_ = std::make_unique<MetaState>();
  }
  return *state_;
}

void wait(const ShardedMeta& meta) {
  meta.change().pending->wait();
  meta.change().pending.reset();
}

}  // namespace tessera::detail::inline tensor_layer
