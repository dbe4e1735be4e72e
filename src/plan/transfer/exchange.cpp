#include <tessera/plan/exchange.h>

#include <algorithm>

#include <c10/util/Exception.h>

#include "layout/arithmetic.h"

namespace tessera {
namespace {

using detail::Run;
using detail::Runs;

using Coordinate = std::vector<int64_t>;

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

// The coordinate of the source mesh that rank `to` receives from, but for the
// mesh dims that cut: those are told by the element.
Coordinate nearest_copy(
    const Layout& source, const Layout& target, int64_t to) {
  if (auto own = source.mesh().coordinate_of(to)) {
    return *own;
  }
  const Coordinate coordinate = *target.mesh().coordinate_of(to);
  int64_t k = 0;
  for (size_t m = 0; m < coordinate.size(); ++m) {
    k = k * target.mesh().size(static_cast<int64_t>(m)) + coordinate[m];
  }
  Coordinate copy(source.placements().size(), 0);
  for (size_t m = copy.size(); m-- > 0;) {
    if (!source.placements()[m].is_shard()) {
      const int64_t size = source.mesh().size(static_cast<int64_t>(m));
      copy[m] = k % size;
      k /= size;
    }
  }
  return copy;
}

// Mesh dims of the source that cut, and their sizes.
struct SourceCuts {
  explicit SourceCuts(const Layout& source) {
    for (size_t m = 0; m < source.placements().size(); ++m) {
      if (source.placements()[m].is_shard()) {
        dims.push_back(m);
        sizes.push_back(source.mesh().size(static_cast<int64_t>(m)));
      }
    }
  }
  void set(Coordinate& coordinate, const Coordinate& own) const {
    for (size_t i = 0; i < dims.size(); ++i) {
      coordinate[dims[i]] = own[i];
    }
  }
  // Tells whether two coordinates agree in the mesh dims that do not cut.
  bool equal_beside(Coordinate a, const Coordinate& b) const {
    for (const size_t m : dims) {
      a[m] = b[m];
    }
    return a == b;
  }
  std::vector<size_t> dims;
  Coordinate sizes;
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
  const SourceCuts cuts(source);
  const auto from_ranks = source.mesh().ranks();
  std::vector<int64_t> sent(from_ranks.size(), 0);
  int64_t most = 0;
  for (const int64_t to : target.mesh().ranks()) {
    const Coordinate coordinate = *target.mesh().coordinate_of(to);
    std::vector<size_t> wanted;
    for (const DimOverlap& dim : dims) {
      wanted.push_back(dim.target.number(coordinate));
    }
    Coordinate from = nearest_copy(source, target, to);
    Coordinate own(cuts.dims.size(), 0);
    int64_t received = 0;
    do {
      cuts.set(from, own);
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
    } while (detail::next_row_major(own, cuts.sizes));
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
  const SourceCuts cuts(source);
  const auto own = source.mesh().coordinate_of(rank);
  const auto coordinate = target.mesh().coordinate_of(rank);
  int64_t received = 0;
  if (coordinate) {
    Coordinate from = nearest_copy(source, target, rank);
    Coordinate parts(cuts.dims.size(), 0);
    do {
      cuts.set(from, parts);
      received += from == own ? 0 : shared(from, *coordinate);
    } while (detail::next_row_major(parts, cuts.sizes));
  }
  int64_t sent = 0;
  for (const int64_t to : target.mesh().ranks()) {
    if (own && to != rank &&
        cuts.equal_beside(*own, nearest_copy(source, target, to))) {
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
  const SourceCuts cuts(source);
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
    Coordinate from = nearest_copy(source, target, to);
    if (to != rank) {
      if (!my_boxes.empty() && cuts.equal_beside(*mine, from)) {
        add(rank, my_boxes, to);
      }
      continue;
    }
    Coordinate own(cuts.dims.size(), 0);
    do {
      cuts.set(from, own);
      add(source.mesh().rank_at(from), source.boxes(from), to);
    } while (detail::next_row_major(own, cuts.sizes));
  }
  return result;
}

}  // namespace tessera
