// An exchange between tilings as one rank carries it out: counts per group rank
// and copies between buffers.
//
// A rank's tiles lie one after another in one flat buffer, in tile order: on
// both sides, so a single tile is its own buffer.
#pragma once

#include <cstdint>
#include <vector>

#include <plan/transfer/exchange_tiles.h>
#include <tensor/move/strided_copies.h>
#include <tessera/comm/communicator.h>
#include <tessera/layout/box_layout.h>

namespace tessera::detail::inline tensor_layer {

/// What this rank of the group sends and receives. The tilings must outlive it.
class BoxMoves {
 public:
  /// `reads_directly`: ranks read each other's buffers, so there is nothing to
  /// pack.
  BoxMoves(
      const BoxLayout& source, const BoxLayout& target,
      const Communicator& group, bool reads_directly);

  std::vector<int64_t> sent;  // elements per group rank, 0 to itself
  std::vector<int64_t> received;
  std::vector<StridedCopies> reads;  // per group rank: its source -> my target
  StridedCopies pack;                // my source -> send buffer
  StridedCopies stay;                // my source -> my target
  StridedCopies unpack;              // receive buffer -> my target

 private:
  using Between = StridedCopies (*)(const Region& held, const Region& wanted);

  int64_t add(
      StridedCopies& copies, const TilePair& pair, Between between,
      int64_t from, int64_t to) const;
  void add_sent(const std::vector<TilePair>& pairs);
  void add_received(const std::vector<TilePair>& pairs, bool own);

  const std::vector<Tile>& source_;
  const std::vector<Tile>& target_;
  std::vector<int64_t> from_;  // of each tile in the buffer of its rank
  std::vector<int64_t> to_;
  bool reads_directly_;
  int64_t total_sent_ = 0;
  int64_t total_received_ = 0;
};

}  // namespace tessera::detail::inline tensor_layer
