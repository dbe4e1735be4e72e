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
  MetaState& state = meta.change();
  if (state.pending) {
    state.pending->wait();
    state.pending.reset();
  }
  if (state.memory && !state.memory->is_filled()) {
    state.memory->fill();
  }
}

}  // namespace tessera::detail::inline tensor_layer
