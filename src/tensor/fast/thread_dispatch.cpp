#include <tensor/fast/thread_dispatch.h>

namespace tessera::detail::inline tensor_layer {

void ThreadDispatch::forget() {
  generation_ = current_generation();
  cache.clear();
  // Not with each change of a machine model: a call that is running may use
  // traits that it found before.
  if (traits_generation_ != traits_generation()) {
    traits_generation_ = traits_generation();
    traits_.clear();
  }
}

std::unique_ptr<ThreadState> make_thread_state() {
  return std::make_unique<ThreadDispatch>();
}

}  // namespace tessera::detail::inline tensor_layer
