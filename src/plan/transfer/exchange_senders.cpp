#include "plan/transfer/exchange_senders.h"

namespace tessera::detail::inline plan_layer {

Senders::Senders(const Layout& source, const Layout& target)
    : source_(source), target_(target) {
  for (size_t m = 0; m < source.placements().size(); ++m) {
    if (source.placements()[m].is_shard()) {
      cut_dims_.push_back(m);
      cut_sizes_.push_back(source.mesh().size(static_cast<int64_t>(m)));
    }
  }
}

bool Senders::includes(Coordinate coordinate, int64_t to) const {
  const Coordinate copy = copy_for(to);
  for (const size_t m : cut_dims_) {
    coordinate[m] = copy[m];
  }
  return coordinate == copy;
}

// The coordinate of the source mesh that rank `to` receives from, but for the
// mesh dims that cut: those are told by the element.
Coordinate Senders::copy_for(int64_t to) const {
  if (auto own = source_.mesh().coordinate_of(to)) {
    return *own;
  }
  const Coordinate coordinate = *target_.mesh().coordinate_of(to);
  int64_t k = 0;
  for (size_t m = 0; m < coordinate.size(); ++m) {
    k = k * target_.mesh().size(static_cast<int64_t>(m)) + coordinate[m];
  }
  Coordinate copy(source_.placements().size(), 0);
  for (size_t m = copy.size(); m-- > 0;) {
    if (!source_.placements()[m].is_shard()) {
      const int64_t size = source_.mesh().size(static_cast<int64_t>(m));
      copy[m] = k % size;
      k /= size;
    }
  }
  return copy;
}

}  // namespace tessera::detail::inline plan_layer
