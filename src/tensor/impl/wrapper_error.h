// What LibTorch says where a program asks a sharded tensor for its memory.
#pragma once

#include <string>

namespace tessera::detail::inline tensor_layer {

inline const std::string& data_pointer_error() {
  static const auto* text = new std::string(
      "a sharded tensor has no data pointer, since each rank holds only a "
      "part; use tessera::to_local(t) for this rank's part or "
      "tessera::full_tensor(t) for the whole, tessera::print(t) or "
      "tessera::to_string(t) to print it, tessera::checkpoint::save to save "
      "it (in Python tessera.checkpoint.save)");
  return *text;
}

}  // namespace tessera::detail::inline tensor_layer
