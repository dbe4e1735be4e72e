// Whether a thread computes derivatives.
#pragma once

namespace tessera::detail::inline tensor_layer {

/// Tells whether this thread is inside a backward pass, where plain tensors are
/// LibTorch's own; a forward that runs again there is none.
bool in_backward_pass();

/// While it lives, this thread runs a forward again inside the backward pass
/// that it is in.
class ForwardAgain {
 public:
  ForwardAgain();
  ~ForwardAgain();
  ForwardAgain(const ForwardAgain&) = delete;
  ForwardAgain& operator=(const ForwardAgain&) = delete;

 private:
  int outer_;
};

}  // namespace tessera::detail::inline tensor_layer
