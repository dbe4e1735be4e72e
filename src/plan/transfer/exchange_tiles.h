// Which boxes of two lists share elements, by their numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/layout/box_layout.h>

namespace tessera::detail::inline plan_layer {

/// Positions of two boxes that share an element.
struct BoxPair {
  size_t source;
  size_t target;
  friend bool operator==(const BoxPair&, const BoxPair&) = default;
};

/// Returns the boxes of two lists that share elements, by target, then by
/// source. Boxes of one list may overlap, and need not cover anything: saved
/// boxes and those that are wanted of them.
std::vector<BoxPair> box_pairs(
    const std::vector<Box>& source, const std::vector<Box>& target);

/// Returns the pairs of tiles of which `rank` holds one or both, in the order
/// of exchange_transfers().
std::vector<BoxPair> tile_pairs(
    const BoxLayout& source, const BoxLayout& target, int64_t rank);

}  // namespace tessera::detail::inline plan_layer
