// Errors of files as users catch them, the same on all ranks.
#pragma once

#include <string>

#include <comm/agreement.h>
#include <io/files/error.h>

namespace tessera::detail::inline checkpoint_layer {

/// Throws an error of files as one that users catch: a FileError where the
/// system failed, a ValueError where the arguments are wrong, a
/// NotImplementedError for what is not read, a c10::Error for damage. It begins
/// with the call.
[[noreturn]] void throw_torch_error(
    const std::string& call, const io::Error& error);

/// Calls f(), with the errors of throw_torch_error().
template <class F>
auto with_torch_errors(const std::string& call, const F& f) {
  try {
    return f();
  } catch (const io::Error& error) {
    throw_torch_error(call, error);
  }
}

/// Begins an agreement in which a FileError keeps its type and number.
Agreement begin_checkpoint_agreement(
    const std::string& call, const Communicator& group);

}  // namespace tessera::detail::inline checkpoint_layer
