// Many blocks of Philox words at once, on the host.
#pragma once

#include <cstdint>

#include <comm/engine/random_counters.h>
#include <tensor/random/philox/philox.h>
#include <tensor/random/philox/vector_width.h>

namespace tessera::detail::inline tensor_layer {

/// Returns the key of a draw: mixed from seed, stream and operation.
PhiloxKey key_of(const RandomOffset& offset);

/// Writes the 4 * count words of blocks first .. first + count - 1.
void philox_blocks(
    PhiloxKey key, CounterTail tail, uint64_t first, int64_t count,
    uint32_t* words, VectorWidth width = widest_vectors());

}  // namespace tessera::detail::inline tensor_layer
