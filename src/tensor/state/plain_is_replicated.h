// The only door between LibTorch's dispatcher and sharded tensors.
#pragma once

#include <atomic>

#include <ATen/core/Tensor.h>
#include <tensor/state/spec_fwd.h>

namespace tessera::detail {

/// Set until the first registration, and when an operator has been defined.
extern std::atomic<bool> has_late_operators;
void register_late_operators();

/// Registers our kernels with the dispatcher, once per process. Everything that
/// makes a sharded tensor calls it, so no static initialiser is needed, and
/// every kernel, for operators that were defined since.
inline void ensure_registered() {
  if (has_late_operators.load(std::memory_order_acquire)) {
    register_late_operators();
  }
}

/// While it lives on this thread, plain tensors in a call are replicated by
/// construction: ATen's own, inside a composite kernel, or ours.
class PlainIsReplicated {
 public:
  PlainIsReplicated();
  ~PlainIsReplicated();
  PlainIsReplicated(const PlainIsReplicated&) = delete;
  PlainIsReplicated& operator=(const PlainIsReplicated&) = delete;
  static bool active();
  /// Tells whether plain tensors are ATen's own, and so equal on all ranks,
  /// rather than a user's who holds an ImplicitReplication.
  static bool by_construction();
};

/// Returns a result of ATen's own decomposition as a sharded tensor. A plain
/// one was made there, of values that all ranks read, and is equal on all of
/// them.
at::Tensor as_replicated(const at::Tensor& result, const DeviceMesh& mesh);

}  // namespace tessera::detail
