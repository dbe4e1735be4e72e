// Operators that were defined since our kernels were registered.
#pragma once

#include <atomic>

namespace tessera::detail::inline tensor_layer {

/// Set until the first registration, and when an operator has been defined.
extern std::atomic<bool> has_late_operators;
/// Registers kernels for them; defined where kernels are registered.
void register_late_operators();

/// Registers our kernels with the dispatcher, once per process. Everything that
/// makes a sharded tensor calls it, so no static initialiser is needed, and
/// every kernel, for operators that were defined since.
inline void ensure_registered() {
  if (has_late_operators.load(std::memory_order_acquire)) {
    register_late_operators();
  }
}

}  // namespace tessera::detail::inline tensor_layer
