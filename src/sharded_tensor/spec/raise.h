// Throws the errors that LibTorch has no macro for.
#pragma once

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <tessera/sharded_tensor/errors.h>

namespace tessera::detail::inline sharded_tensor_layer {

/// Throws an `Error` with a text made of its arguments.
template <class Error, class... Text>
[[noreturn]] void raise(const Text&... text) {
  throw Error({__func__, __FILE__, __LINE__}, c10::str(text...));
}

}  // namespace tessera::detail::inline sharded_tensor_layer
