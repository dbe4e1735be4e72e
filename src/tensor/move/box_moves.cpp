#include <tensor/move/box_moves.h>

#include <unordered_map>
#include <utility>

namespace tessera::detail::inline tensor_layer {

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
    bool reads_directly)
    : source_(source.tiles()),
      target_(target.tiles()),
      from_(buffer_offsets(source_)),
      to_(buffer_offsets(target_)),
      reads_directly_(reads_directly) {
  const auto size = static_cast<size_t>(group.size());
  const auto here = static_cast<size_t>(group.rank());
  const int64_t me = group.ranks()[here];
  std::unordered_map<int64_t, size_t> group_ranks;
  for (size_t g = 0; g < size; ++g) {
    group_ranks[group.ranks()[g]] = g;
  }
  std::vector<std::vector<TilePair>> leaving(size), arriving(size);
  for (const TilePair& pair : tile_pairs(source, target, me)) {
    const int64_t from = source_[pair.source].rank;
    const int64_t to = target_[pair.target].rank;
    (to == me ? arriving[group_ranks[from]] : leaving[group_ranks[to]])
        .push_back(pair);
  }
  for (size_t g = 0; g < size; ++g) {
    add_sent(leaving[g]);
    add_received(arriving[g], g == here);
  }
}

// Adds the copies of a pair, shifted; returns its elements.
int64_t BoxMoves::add(
    StridedCopies& copies, const TilePair& pair, Between between, int64_t from,
    int64_t to) const {
  int64_t count = 0;
  for (StridedCopy& copy : between(
           region_of(source_[pair.source].box),
           region_of(target_[pair.target].box))) {
    copy.from += from;
    copy.to += to;
    count += copy.numel();
    copies.push_back(std::move(copy));
  }
  return count;
}

void BoxMoves::add_sent(const std::vector<TilePair>& pairs) {
  int64_t count = 0;
  for (const TilePair& pair : pairs) {
    count +=
        reads_directly_
            ? intersect(source_[pair.source].box, target_[pair.target].box)
                  ->numel()
            : add(pack, pair, packing, from_[pair.source], total_sent_ + count);
  }
  sent.push_back(count);
  total_sent_ += count;
}

void BoxMoves::add_received(const std::vector<TilePair>& pairs, bool own) {
  int64_t count = 0;
  StridedCopies read_copies;
  StridedCopies& direct = reads_directly_ ? read_copies : stay;
  for (const TilePair& pair : pairs) {
    const int64_t to = to_[pair.target];
    count += own || reads_directly_
                 ? add(direct, pair, copies_between, from_[pair.source], to)
                 : add(unpack, pair, unpacking, total_received_ + count, to);
  }
  reads.push_back(std::move(read_copies));
  received.push_back(own ? 0 : count);
  total_received_ += received.back();
}

}  // namespace tessera::detail::inline tensor_layer
