// From which copy of an element a rank receives it; see exchange.h.
#pragma once

#include <cstdint>
#include <vector>

#include <tessera/layout/layout.h>

#include "layout/arithmetic.h"

namespace tessera::detail::inline plan_layer {

using Coordinate = std::vector<int64_t>;

/// The ranks that hold the elements of an exchange between two layouts, for
/// each rank that wants some. The layouts must outlive this.
class Senders {
 public:
  Senders(const Layout& source, const Layout& target);

  /// Calls f(coordinate) for the coordinates of the source mesh that together
  /// hold one copy of the tensor: the one that rank `to` of the target mesh
  /// receives from. Row-major over the mesh dims that cut.
  template <class F>
  void for_each(int64_t to, const F& f) const {
    Coordinate coordinate = copy_for(to);
    Coordinate cut(cut_dims_.size(), 0);
    do {
      for (size_t i = 0; i < cut.size(); ++i) {
        coordinate[cut_dims_[i]] = cut[i];
      }
      f(coordinate);
    } while (next_row_major(cut, cut_sizes_));
  }
  /// Tells whether a coordinate of the source mesh is one of those.
  bool includes(Coordinate coordinate, int64_t to) const;

 private:
  Coordinate copy_for(int64_t to) const;

  const Layout& source_;
  const Layout& target_;
  std::vector<size_t> cut_dims_;  // mesh dims of the source that cut
  Coordinate cut_sizes_;
};

}  // namespace tessera::detail::inline plan_layer
