#include <tessera/plan/exchange.h>

#include <algorithm>

#include <c10/util/Exception.h>

#include "layout/arithmetic.h"
#include "plan/transfer/exchange_senders.h"

namespace tessera {
namespace {

using detail::Coordinate;
using detail::Run;
using detail::Runs;

int64_t overlap(const Runs& a, const Runs& b) {
  int64_t sum = 0;
  for (const Run& x : a) {
    for (const Run& y : b) {
      const int64_t shared =
          std::min(x.end, y.end) - std::max(x.begin, y.begin);
      sum += std::max<int64_t>(shared, 0);
    }
  }
  return sum;
}

// One tensor dim of a layout: the runs of every coordinate of its cuts, found
// by the number that those coordinates spell.
class DimRuns {
 public:
  DimRuns(const Layout& layout, int64_t tensor_dim)
      : cuts_(layout.cuts(tensor_dim)) {
    for (const int64_t m : cuts_) {
      sizes_.push_back(layout.mesh().size(m));
    }
    Coordinate full(static_cast<size_t>(layout.mesh().ndim()), 0);
    Coordinate own(cuts_.size(), 0);
    do {
      for (size_t i = 0; i < cuts_.size(); ++i) {
        full[static_cast<size_t>(cuts_[i])] = own[i];
      }
      runs_.push_back(layout.runs(tensor_dim, full));
    } while (detail::next_row_major(own, sizes_));
  }

  size_t number(const Coordinate& coordinate) const {
    int64_t result = 0;
    for (size_t i = 0; i < cuts_.size(); ++i) {
      result = result * sizes_[i] + coordinate[static_cast<size_t>(cuts_[i])];
    }
    return static_cast<size_t>(result);
  }
  const std::vector<Runs>& all() const { return runs_; }

 private:
  const std::vector<int64_t>& cuts_;
  Coordinate sizes_;
  std::vector<Runs> runs_;
};

// For each number of the source cuts of a tensor dim and each of the target's:
// how many indices they share.
struct DimOverlap {
  DimOverlap(const Layout& a, const Layout& b, int64_t d)
      : source(a, d), target(b, d) {
    for (const Runs& x : source.all()) {
      for (const Runs& y : target.all()) {
        shared.push_back(overlap(x, y));
      }
    }
  }
  int64_t at(size_t from, size_t to) const {
    return shared[from * target.all().size() + to];
  }

  DimRuns source;
  DimRuns target;
  std::vector<int64_t> shared;
};

void check(const char* call, const Layout& source, const Layout& target) {
  TORCH_CHECK_VALUE(
      source.shape() == target.shape(), call,
      ": both layouts must have one shape; got ", source, " and ", target);
  for (size_t m = 0; m < source.placements().size(); ++m) {
    const Placement& p = source.placements()[m];
    TORCH_CHECK_VALUE(
        !p.is_partial() ||
            (source.mesh() == target.mesh() && target.placements()[m] == p),
        call, ": the partial of mesh dim ", m, " must be reduced first; got ",
        source, " and ", target);
  }
}

}  // namespace

int64_t exchange_elements(const Layout& source, const Layout& target) {
  check("exchange_elements", source, target);
  std::vector<DimOverlap> dims;
  dims.reserve(source.shape().size());
  for (size_t d = 0; d < source.shape().size(); ++d) {
    dims.emplace_back(source, target, static_cast<int64_t>(d));
  }
  const detail::Senders senders(source, target);
  const auto from_ranks = source.mesh().ranks();
  std::vector<int64_t> sent(from_ranks.size(), 0);
  int64_t most = 0;
  for (const int64_t to : target.mesh().ranks()) {
    const Coordinate coordinate = *target.mesh().coordinate_of(to);
    std::vector<size_t> wanted;
    for (const DimOverlap& dim : dims) {
      wanted.push_back(dim.target.number(coordinate));
    }
    int64_t received = 0;
    senders.for_each(to, [&](const Coordinate& from) {
      int64_t count = 1;
      for (size_t d = 0; d < dims.size() && count > 0; ++d) {
        count *= dims[d].at(dims[d].source.number(from), wanted[d]);
      }
      int64_t position = 0;
      for (size_t m = 0; m < from.size(); ++m) {
        position =
            position * source.mesh().size(static_cast<int64_t>(m)) + from[m];
      }
      if (from_ranks[static_cast<size_t>(position)] != to) {
        received += count;
        sent[static_cast<size_t>(position)] += count;
      }
    });
    most = std::max(most, received);
  }
  return std::max(most, *std::max_element(sent.begin(), sent.end()));
}

int64_t exchange_elements_on(
    const Layout& source, const Layout& target, int64_t rank) {
  check("exchange_elements_on", source, target);
  std::vector<std::pair<DimRuns, DimRuns>> dims;
  for (size_t d = 0; d < source.shape().size(); ++d) {
    const auto dim = static_cast<int64_t>(d);
    dims.emplace_back(DimRuns(source, dim), DimRuns(target, dim));
  }
  const auto shared = [&](const Coordinate& from, const Coordinate& to) {
    int64_t count = 1;
    for (const auto& [held, wanted] : dims) {
      count *= overlap(
          held.all()[held.number(from)], wanted.all()[wanted.number(to)]);
    }
    return count;
  };
  const detail::Senders senders(source, target);
  const auto own = source.mesh().coordinate_of(rank);
  const auto coordinate = target.mesh().coordinate_of(rank);
  int64_t received = 0;
  if (coordinate) {
    senders.for_each(rank, [&](const Coordinate& from) {
      received += from == own ? 0 : shared(from, *coordinate);
    });
  }
  int64_t sent = 0;
  for (const int64_t to : target.mesh().ranks()) {
    if (own && to != rank && senders.includes(*own, to)) {
      sent += shared(*own, *target.mesh().coordinate_of(to));
    }
  }
  return std::max(sent, received);
}

std::vector<Transfer> exchange_transfers(
    const Layout& source, const Layout& target, int64_t rank) {
  check("exchange_transfers", source, target);
  TORCH_CHECK_INDEX(
      source.mesh().coordinate_of(rank) || target.mesh().coordinate_of(rank),
      "exchange_transfers: the rank must be in one of the meshes; got ", rank,
      " for ", source.mesh(), " and ", target.mesh());
  const detail::Senders senders(source, target);
  std::vector<Transfer> result;
  const auto add = [&](int64_t from, const std::vector<Box>& held, int64_t to) {
    for (const Box& wanted : target.boxes(*target.mesh().coordinate_of(to))) {
      for (const Box& box : held) {
        if (auto shared = intersect(wanted, box)) {
          result.push_back({from, to, *std::move(shared)});
        }
      }
    }
  };
  const auto mine = source.mesh().coordinate_of(rank);
  const auto my_boxes = mine ? source.boxes(*mine) : std::vector<Box>();
  auto receivers = target.mesh().ranks();
  std::sort(receivers.begin(), receivers.end());
  for (const int64_t to : receivers) {
    if (to == rank) {
      senders.for_each(to, [&](const Coordinate& from) {
        add(source.mesh().rank_at(from), source.boxes(from), to);
      });
    } else if (!my_boxes.empty() && senders.includes(*mine, to)) {
      add(rank, my_boxes, to);
    }
  }
  return result;
}

}  // namespace tessera
