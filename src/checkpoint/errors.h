// Errors of files, as the functions of checkpoint.h throw them.
#pragma once

#include <string>

#include <c10/util/Exception.h>
#include <io/files/error.h>

namespace tessera::detail::inline checkpoint_layer {

/// Calls f(); errors of files become LibTorch's, which users catch, and begin
/// with the call.
template <class F>
auto with_torch_errors(const std::string& call, const F& f) {
  try {
    return f();
  } catch (const io::Error& error) {
    TORCH_CHECK(false, call, ": ", error.what());
  }
}

}  // namespace tessera::detail::inline checkpoint_layer
