// Tensors of the library's own, under a DeferredInit.
#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <tensor/state/dispatch_keys.h>

namespace tessera::detail::inline tensor_layer {

/// While it lives on this thread, new tensors have memory, also under a
/// DeferredInit: shards, buffers of moves, values that are cut.
class MemoryNow {
 private:
  c10::impl::ExcludeDispatchKeyGuard off_{kUseKey};
};

}  // namespace tessera::detail::inline tensor_layer
