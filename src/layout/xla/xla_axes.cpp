#include "layout/xla/xla_axes.h"

#include <algorithm>
#include <optional>

#include <c10/util/Exception.h>
#include <tessera/layout/notation.h>

namespace tessera::detail::inline layout_layer {
namespace {

class AxesOfLayout {
 public:
  AxesOfLayout(const char* call, const Layout& layout)
      : call_(call), layout_(layout), mesh_(layout.mesh()) {}

  XlaAxes axes() const {
    check_ranks();
    XlaAxes axes;
    for (int64_t m = 0; m < mesh_.ndim(); ++m) {
      const Placement& p = at(m);
      if (p.is_partial()) {
        check_partial(m);
        axes.unreduced.push_back(m);
        axes.reduce_op = p.reduce_op();
      } else if (p.is_replicate()) {
        axes.replicated.push_back(m);
      } else {
        check_chunked(m);
      }
    }
    for (size_t d = 0; d < layout_.shape().size(); ++d) {
      axes.dims.push_back(dim_axes(static_cast<int64_t>(d)));
    }
    return axes;
  }

 private:
  // A part of a tensor dim, from outermost to innermost: the mesh dim that
  // cuts it, or -1 for indices that stay together.
  struct Factor {
    int64_t size;
    int64_t mesh_dim;
  };

  std::string text() const {
    return std::string(call_) + "(" + to_string(layout_) + ")";
  }
  const Placement& at(int64_t m) const {
    return layout_.placements()[static_cast<size_t>(m)];
  }

  void check_ranks() const {
    TORCH_CHECK_VALUE(
        mesh_.ndim() == 0 || is_iota(mesh_) ||
            mesh_.max_rank() == mesh_.size() - 1,
        text(), ": XLA numbers the devices of a program 0 .. ",
        mesh_.size() - 1, ", but the mesh holds rank ", mesh_.max_rank(),
        "; give a mesh of positions instead of ranks: MeshShape(sizes, names)");
  }

  void check_partial(int64_t m) const {
    const ReduceOp op = at(m).reduce_op();
    TORCH_CHECK_VALUE(
        op != ReduceOp::kAvg && op != ReduceOp::kProduct, text(),
        ": XLA knows addends of sum, max and min only; got ", at(m),
        " for mesh dim ", m,
        op == ReduceOp::kAvg
            ? "; scale the addends by 1/n and say P(sum), or reduce first"
            : "; reduce first");
  }

  void check_chunked(int64_t m) const {
    TORCH_CHECK_VALUE(
        at(m).is_chunked(), text(), ": XLA cuts into equal tiles only; got ",
        at(m), " for mesh dim ", m, " and tensor dim ", at(m).dim(),
        "; redistribute to S(", at(m).dim(), ") first");
  }

  bool is_strided(int64_t m) const {
    return at(m).split_factor() > 1 && mesh_.size(m) > 1;
  }

  std::vector<int64_t> dim_axes(int64_t d) const {
    const std::vector<int64_t>& cuts = layout_.cuts(d);
    const int64_t size = layout_.shape()[static_cast<size_t>(d)];
    const auto real = std::count_if(
        cuts.begin(), cuts.end(), [&](int64_t m) { return mesh_.size(m) > 1; });
    const bool strided = std::any_of(
        cuts.begin(), cuts.end(), [&](int64_t m) { return is_strided(m); });
    if (real > 1) {
      check_even(d, cuts, size);
    }
    return strided && size > 0 ? strided_axes(d, cuts, size) : cuts;
  }

  void check_even(
      int64_t d, const std::vector<int64_t>& cuts, int64_t size) const {
    int64_t tiles = 1;
    for (const int64_t m : cuts) {
      tiles *= mesh_.size(m);
    }
    TORCH_CHECK_VALUE(
        size % tiles == 0, text(), ": mesh dims ", shape_to_string(cuts),
        " cut tensor dim ", d, " again and again, XLA cuts once into ", tiles,
        " tiles, which is the same only if the size divides; got size ", size,
        "; pad it to a multiple of ", tiles, ", or cut it by one mesh dim");
  }

  // Each cut takes its factor out of the indices that are still together:
  //   size 8, SS(0,2) S(0) on mesh(2, 2):  8 -> 2 [x 2] 2 -> [y 2] [x 2] 2
  // so the order is y, x. XLA wants all cuts outside of what stays together.
  std::vector<int64_t> strided_axes(
      int64_t d, const std::vector<int64_t>& cuts, int64_t size) const {
    std::vector<Factor> factors{{size, -1}};
    for (const int64_t m : cuts) {
      const int64_t pieces = is_strided(m) ? at(m).split_factor() : 1;
      const auto place = split_off(factors, pieces);
      TORCH_CHECK_VALUE(
          place && factors[*place].size % mesh_.size(m) == 0, text(), ": ",
          at(m), " for mesh dim ", m, " cuts across the pieces of tensor dim ",
          d, ", which one axis of XLA cannot; redistribute to S(", d,
          ") first");
      factors[*place].size /= mesh_.size(m);
      factors.insert(
          factors.begin() + static_cast<std::ptrdiff_t>(*place),
          Factor{mesh_.size(m), m});
    }
    return order_of(d, factors);
  }

  // Makes the first `pieces` of what stays together factors of their own;
  // returns the factor after them, or nothing where they end inside of one.
  static std::optional<size_t> split_off(
      std::vector<Factor>& factors, int64_t pieces) {
    for (size_t i = 0; i < factors.size(); ++i) {
      Factor& factor = factors[i];
      const bool last = i + 1 == factors.size();
      if (factor.mesh_dim >= 0 || (factor.size == 1 && !last)) {
        continue;
      }
      if (pieces == 1) {
        return i;
      }
      if (pieces % factor.size == 0 && !last) {
        pieces /= factor.size;
      } else if (factor.size % pieces == 0) {
        factor.size /= pieces;
        factors.insert(
            factors.begin() + static_cast<std::ptrdiff_t>(i),
            Factor{pieces, -1});
        return i + 1;
      } else {
        return std::nullopt;
      }
    }
    return std::nullopt;
  }

  std::vector<int64_t> order_of(
      int64_t d, const std::vector<Factor>& factors) const {
    std::vector<int64_t> order;
    bool together = false;
    for (const Factor& factor : factors) {
      if (factor.mesh_dim < 0) {
        together = together || factor.size > 1;
        continue;
      }
      TORCH_CHECK_VALUE(
          !together || factor.size == 1, text(), ": mesh dim ", factor.mesh_dim,
          " holds several boxes of tensor dim ", d, " (", at(factor.mesh_dim),
          "), XLA holds one; redistribute to S(", d, ") first");
      order.push_back(factor.mesh_dim);
    }
    return order;
  }

  const char* call_;
  const Layout& layout_;
  const MeshShape& mesh_;
};

}  // namespace

XlaAxes xla_axes(const char* call, const Layout& layout) {
  return AxesOfLayout(call, layout).axes();
}

Layout layout_of_axes(
    const char* call, std::vector<int64_t> shape, MeshShape mesh,
    const XlaAxes& axes) {
  Placements placements(static_cast<size_t>(mesh.ndim()), Replicate());
  for (size_t d = 0; d < axes.dims.size(); ++d) {
    for (size_t order = 0; order < axes.dims[d].size(); ++order) {
      placements[static_cast<size_t>(axes.dims[d][order])] =
          Shard(static_cast<int64_t>(d))
              .with_order(static_cast<int64_t>(order));
    }
  }
  for (const int64_t m : axes.unreduced) {
    placements[static_cast<size_t>(m)] = Partial(axes.reduce_op);
  }
  Layout layout(std::move(shape), std::move(mesh), std::move(placements));
  xla_axes(call, layout);
  return layout;
}

bool is_iota(const MeshShape& mesh) {
  return mesh == MeshShape(mesh.sizes(), mesh.names());
}

}  // namespace tessera::detail::inline layout_layer
