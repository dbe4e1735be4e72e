#include <tensor/impl/sharded_impl.h>

#include <tensor/state/thread_state.h>
#include <tensor/state/torch_compat.h>

namespace tessera::detail {

ShardedMeta::~ShardedMeta() = default;

ShardedImpl::~ShardedImpl() {
  if (extra_meta_ && !extra_meta_->symbolic_shape_meta_ &&
      extra_meta_->custom_storage_error_msg_) {
    forget_tensor(*extra_meta_);
    ThreadState::here().spare.texts.give(extra_meta_.release());
  }
}

void settle(const ShardedMeta& meta) {
  meta.pending->settle();
  meta.pending.reset();
}

}  // namespace tessera::detail
