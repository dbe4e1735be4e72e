// What plain tensors in a call on sharded ones are.
#pragma once

namespace tessera::detail::inline tensor_layer {

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

}  // namespace tessera::detail::inline tensor_layer
