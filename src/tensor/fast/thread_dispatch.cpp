#include <tensor/fast/thread_dispatch.h>

namespace tessera::detail::inline tensor_layer {

void ThreadDispatch::forget() {
  generation_ = traits_generation();
  cache.clear();
  traits_.clear();
}

std::unique_ptr<ThreadState> make_thread_state() {
  return std::make_unique<ThreadDispatch>();
}

}  // namespace tessera::detail::inline tensor_layer
