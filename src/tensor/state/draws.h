// Which draws of a call are noted, or given to it, instead of taken from a
// rank's counters.
#pragma once

#include <cstddef>
#include <vector>

#include <comm/engine/random_counters.h>

namespace tessera::detail::inline tensor_layer {

/// What next_offset() asks while a call is recorded, or runs later; see Note
/// [Deferred tensors].
struct Draws {
  /// Notes down what the counters give, and runs no kernel.
  bool is_recording = false;
  std::vector<RandomOffset> offsets = {};
  size_t next = 0;
};

}  // namespace tessera::detail::inline tensor_layer
