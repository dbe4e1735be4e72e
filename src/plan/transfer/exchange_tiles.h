// Which tiles of two tilings share elements, by their numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/layout/box_layout.h>

namespace tessera::detail::inline plan_layer {

/// Positions of two tiles that share an element.
struct TilePair {
  size_t source;
  size_t target;
};

/// Returns the pairs of which `rank` holds one tile or both, in the order of
/// exchange_transfers().
std::vector<TilePair> tile_pairs(
    const BoxLayout& source, const BoxLayout& target, int64_t rank);

}  // namespace tessera::detail::inline plan_layer
