// Copies bytes; none of them, from or to nowhere, are no error.
#pragma once

#include <cstddef>
#include <cstring>

namespace tessera::base {

/// Copies bytes. std::memcpy() must not be given a null pointer even for none,
/// and empty tensors and lists have no memory.
inline void copy_bytes(void* to, const void* from, size_t bytes) {
  if (bytes != 0) {
    std::memcpy(to, from, bytes);
  }
}

}  // namespace tessera::base
