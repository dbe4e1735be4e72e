#include "plan/transfer/transfer_plan.h"

#include <unordered_map>
#include <utility>

#include "plan/transfer/exchange_senders.h"
#include "plan/transfer/exchange_tiles.h"

namespace tessera::detail::inline plan_layer {
namespace {

// A region that a rank holds or wants, and where in its buffer it begins.
struct BufferRegion {
  Region region;
  int64_t begin = 0;
};

// What goes from one rank to another.
struct Share {
  BufferRegion held;
  BufferRegion wanted;
};
using Shares = std::vector<Share>;

// Makes a plan, one group rank after the other.
class Planner {
 public:
  explicit Planner(const TransferGroup& group) : group_(group) {}

  void add_own(const Shares& shares) {
    StridedCopies copies;
    for (const Share& s : shares) {
      append_shifted(
          copies, copies_between(s.held.region, s.wanted.region), s.held.begin,
          s.wanted.begin);
    }
    plan_.sent.push_back(0);
    plan_.received.push_back(0);
    if (group_.reads_directly) {
      plan_.reads.push_back(std::move(copies));
    } else {
      plan_.stay = std::move(copies);
    }
  }

  void add(const Shares& leaving, const Shares& arriving) {
    plan_.sent.push_back(0);
    for (const Share& s : leaving) {
      StridedCopies copies = packing(s.held.region, s.wanted.region);
      const int64_t count = total_numel(copies);
      if (!group_.reads_directly) {
        append_shifted(plan_.pack, std::move(copies), s.held.begin, sent_);
      }
      plan_.sent.back() += count;
      sent_ += count;
    }
    plan_.received.push_back(0);
    if (group_.reads_directly) {
      plan_.reads.emplace_back();
    }
    for (const Share& s : arriving) {
      add_received(s);
    }
  }

  TransferPlan take() { return std::move(plan_); }

 private:
  void add_received(const Share& s) {
    StridedCopies copies = group_.reads_directly
                               ? copies_between(s.held.region, s.wanted.region)
                               : unpacking(s.held.region, s.wanted.region);
    const int64_t count = total_numel(copies);
    group_.reads_directly
        ? append_shifted(
              plan_.reads.back(), std::move(copies), s.held.begin,
              s.wanted.begin)
        : append_shifted(
              plan_.unpack, std::move(copies), received_, s.wanted.begin);
    plan_.received.back() += count;
    received_ += count;
  }

  const TransferGroup& group_;
  TransferPlan plan_;
  int64_t sent_ = 0;
  int64_t received_ = 0;
};

std::vector<int64_t> buffer_begins(const std::vector<Tile>& tiles) {
  std::unordered_map<int64_t, int64_t> used;
  std::vector<int64_t> begins;
  for (const Tile& tile : tiles) {
    int64_t& next = used[tile.rank];
    begins.push_back(next);
    next += tile.box.numel();
  }
  return begins;
}

}  // namespace

TransferPlan plan_transfer(
    const Layout& source, const Layout& target, const TransferGroup& group) {
  const Senders senders(source, target);
  const auto shares = [&](int64_t from, int64_t to) -> Shares {
    const auto held = source.mesh().coordinate_of(from);
    const auto wanted = target.mesh().coordinate_of(to);
    if (!held || !wanted || !senders.includes(*held, to)) {
      return {};
    }
    return {{{region_of(source, *held)}, {region_of(target, *wanted)}}};
  };
  Planner planner(group);
  for (const int64_t rank : group.ranks) {
    rank == group.rank
        ? planner.add_own(shares(rank, rank))
        : planner.add(shares(group.rank, rank), shares(rank, group.rank));
  }
  return planner.take();
}

TransferPlan plan_transfer(
    const BoxLayout& source, const BoxLayout& target,
    const TransferGroup& group) {
  const std::vector<int64_t> from = buffer_begins(source.tiles());
  const std::vector<int64_t> to = buffer_begins(target.tiles());
  std::unordered_map<int64_t, Shares> leaving;
  std::unordered_map<int64_t, Shares> arriving;
  for (const BoxPair& pair : tile_pairs(source, target, group.rank)) {
    const Tile& held = source.tiles()[pair.source];
    const Tile& wanted = target.tiles()[pair.target];
    (wanted.rank == group.rank ? arriving[held.rank] : leaving[wanted.rank])
        .push_back(
            {{region_of(held.box), from[pair.source]},
             {region_of(wanted.box), to[pair.target]}});
  }
  Planner planner(group);
  for (const int64_t rank : group.ranks) {
    rank == group.rank ? planner.add_own(arriving[rank])
                       : planner.add(leaving[rank], arriving[rank]);
  }
  return planner.take();
}

std::vector<BoxCopies> copies_between_boxes(
    const std::vector<Box>& source, const std::vector<Box>& target) {
  std::vector<BoxCopies> result;
  for (const BoxPair& pair : box_pairs(source, target)) {
    result.push_back(
        {pair.source, pair.target,
         copies_between(
             region_of(source[pair.source]), region_of(target[pair.target]))});
  }
  return result;
}

}  // namespace tessera::detail::inline plan_layer
