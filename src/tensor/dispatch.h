// The only door between LibTorch's dispatcher and sharded tensors.
#pragma once

namespace tessera::detail {

/// Registers our kernels with the dispatcher, once per process. Everything that
/// makes a sharded tensor calls it, so no static initialiser is needed.
void ensure_registered();

/// While it lives on this thread, plain tensors in a call are replicated by
/// construction: ATen's own, inside a composite kernel, or ours.
class PlainIsReplicated {
 public:
  PlainIsReplicated();
  ~PlainIsReplicated();
  PlainIsReplicated(const PlainIsReplicated&) = delete;
  PlainIsReplicated& operator=(const PlainIsReplicated&) = delete;
  static bool active();
};

}  // namespace tessera::detail
