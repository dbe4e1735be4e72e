#include <tensor/move/box_moves.h>

#include <unordered_map>
#include <utility>

namespace tessera::detail {

namespace {

std::vector<int64_t> buffer_offsets(const std::vector<Tile>& tiles) {
  std::unordered_map<int64_t, int64_t> used;
  std::vector<int64_t> offsets;
  for (const Tile& tile : tiles) {
    int64_t& next = used[tile.rank];
    offsets.push_back(next);
    next += tile.box.numel();
  }
  return offsets;
}

}  // namespace

BoxMoves::BoxMoves(
    const BoxLayout& source, const BoxLayout& target, const Communicator& group,
    bool by_pulls)
    : source_(source.tiles()),
      target_(target.tiles()),
      from_(buffer_offsets(source_)),
      to_(buffer_offsets(target_)),
      by_pulls_(by_pulls) {
  const auto size = static_cast<size_t>(group.size());
  const auto here = static_cast<size_t>(group.rank());
  const int64_t me = group.ranks()[here];
  std::unordered_map<int64_t, size_t> places;
  for (size_t g = 0; g < size; ++g) {
    places[group.ranks()[g]] = g;
  }
  std::vector<std::vector<TilePair>> leaving(size), arriving(size);
  for (const TilePair& pair : tile_pairs(source, target, me)) {
    const int64_t from = source_[pair.source].rank;
    const int64_t to = target_[pair.target].rank;
    (to == me ? arriving[places[from]] : leaving[places[to]]).push_back(pair);
  }
  for (size_t g = 0; g < size; ++g) {
    add_sent(leaving[g]);
    add_received(arriving[g], g == here);
  }
}

// Adds the copies of a pair, shifted; returns its elements.
int64_t BoxMoves::add(
    Pieces& pieces, const TilePair& pair, Between between, int64_t from,
    int64_t to) const {
  int64_t count = 0;
  for (Piece& piece : between(
           region_of(source_[pair.source].box),
           region_of(target_[pair.target].box))) {
    piece.from += from;
    piece.to += to;
    count += piece.numel();
    pieces.push_back(std::move(piece));
  }
  return count;
}

void BoxMoves::add_sent(const std::vector<TilePair>& pairs) {
  int64_t count = 0;
  for (const TilePair& pair : pairs) {
    count +=
        by_pulls_
            ? intersect(source_[pair.source].box, target_[pair.target].box)
                  ->numel()
            : add(pack, pair, packing, from_[pair.source], total_sent_ + count);
  }
  sent.push_back(count);
  total_sent_ += count;
}

void BoxMoves::add_received(const std::vector<TilePair>& pairs, bool own) {
  int64_t count = 0;
  Pieces pulled;
  Pieces& direct = by_pulls_ ? pulled : stay;
  for (const TilePair& pair : pairs) {
    const int64_t to = to_[pair.target];
    count += own || by_pulls_
                 ? add(direct, pair, pieces_between, from_[pair.source], to)
                 : add(unpack, pair, unpacking, total_received_ + count, to);
  }
  pulls.push_back(std::move(pulled));
  received.push_back(own ? 0 : count);
  total_received_ += received.back();
}

}  // namespace tessera::detail
