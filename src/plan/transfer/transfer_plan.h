// Who sends what to whom, as one rank carries it out: counts per rank of a
// group and copies between buffers. No communicator is needed.
//
// What a rank holds lies in one contiguous buffer: its shard, or its tiles one
// after another in tile order. So a single tile is its own buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/layout/box_layout.h>

#include "plan/transfer/strided_copies.h"

namespace tessera::detail::inline plan_layer {

/// What one rank of a group sends and receives.
struct TransferPlan {
  std::vector<int64_t> sent = {};  // elements per group rank
  std::vector<int64_t> received = {};
  /// Per group rank: its source -> my target. Set where ranks read each other's
  /// buffers; then there is nothing to pack, to keep or to unpack.
  std::vector<StridedCopies> reads = {};
  StridedCopies pack = {};    // my source -> send buffer
  StridedCopies stay = {};    // my source -> my target
  StridedCopies unpack = {};  // receive buffer -> my target
};

/// The ranks of an exchange, in the order of counts and buffers.
struct TransferGroup {
  const std::vector<int64_t>& ranks;
  int64_t rank;         // the one that carries the plan out
  bool reads_directly;  // ranks read each other's buffers
};

/// Returns what a rank of `group` does in an exchange between two layouts, as
/// exchange_transfers() says; nothing is counted from a rank to itself.
TransferPlan plan_transfer(
    const Layout& source, const Layout& target, const TransferGroup& group);
/// Returns the same between two tilings, whose ranks are all in the group.
TransferPlan plan_transfer(
    const BoxLayout& source, const BoxLayout& target,
    const TransferGroup& group);

/// How a wanted box is filled from one that is held.
struct BoxCopies {
  size_t source;
  size_t target;
  StridedCopies copies;
};
/// Returns how boxes are filled from others, without ranks: each box is a
/// row-major buffer of its own. In the order of box_pairs().
/// Example: [0:4] and [4:8] fill [2:6] by 2 -> 0, 2 long, and 0 -> 2, 2 long.
std::vector<BoxCopies> copies_between_boxes(
    const std::vector<Box>& source, const std::vector<Box>& target);

}  // namespace tessera::detail::inline plan_layer
