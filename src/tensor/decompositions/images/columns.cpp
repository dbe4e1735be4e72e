// unfold and fold of images that are cut in rows or columns: im2col, whose
// result has a column of values per window, windows in row-major order, and
// col2im, which adds the columns up where they came from.
//
// Cuts of an image become cuts of its rows, since windows of a run of rows are
// a run of the result. Worked row, [1, 1, 4, 6] S(2) over 2, windows of 2 x 2:
// 3 x 5 windows; rank 0 has rows 0:2 of them, windows 0:10, rank 1 the rest,
// and sends rank 0 one row.
#include <algorithm>
#include <array>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/util/accumulate.h>
#include <layout/cut.h>
#include <tensor/decompositions/table.h>
#include <tensor/decompositions/windowed_call.h>

namespace tessera::detail::inline tensor_layer {

namespace {

// How windows move over rows and columns.
struct ColumnWindows {
  // `get(name)` returns a list of the call.
  template <class Get>
  explicit ColumnWindows(const Get& get) {
    const std::vector<int64_t> size = get("kernel_size");
    const std::vector<int64_t> stride = get("stride");
    const std::vector<int64_t> padding = get("padding");
    const std::vector<int64_t> dilation = get("dilation");
    for (size_t i = 0; i < 2; ++i) {
      along[i] = {size[i], stride[i], padding[i], dilation[i]};
    }
  }
  bool are_valid(c10::IntArrayRef image) const {
    for (size_t i = 0; i < 2; ++i) {
      const Window& w = along[i];
      if (w.size < 1 || w.stride < 1 || w.dilation < 1 || w.padding < 0 ||
          w.count(image[i]) < 1) {
        return false;  // ATen says what is wrong
      }
    }
    return true;
  }
  int64_t values() const { return along[0].size * along[1].size; }

  std::array<Window, 2> along;
};

// The placements of an image whose rows take all cuts but those of batches.
// Those of its rows stay as they are, if there are no others.
Placements by_rows(
    const Placements& given, int64_t rows_dim, bool is_of_image) {
  Placements placements = without_partials(given);
  const auto shards_image = [&](const Placement& p) {
    return p.is_shard() && p.dim() >= rows_dim - 1;
  };
  const bool keeps =
      is_of_image &&
      std::all_of(
          placements.begin(), placements.end(), [&](const Placement& p) {
            return !shards_image(p) || p.dim() == rows_dim;
          });
  for (Placement& p : placements) {
    p = shards_image(p) && !keeps ? Shard(rows_dim) : p;
  }
  return placements;
}

class ShardedColumns {
 public:
  // `like` is what the call has: the image, or columns.
  ShardedColumns(
      const ColumnWindows& by, const DTensorSpec& like,
      const std::vector<int64_t>& image)
      : by_(by),
        rows_dim_(static_cast<int64_t>(image.size()) - 2),
        windows_(
            *DTensorSpec::make(
                like.mesh(),
                by_rows(like.placements(), rows_dim_, like.shape() == image),
                image, like.dtype()),
            shape_of_windows(image), rows_dim_,
            [w = by.along[0]](int64_t, const Run& results) {
              return w.read_by(results);
            }) {}
  ShardedColumns(const ShardedColumns&) = delete;
  ShardedColumns& operator=(const ShardedColumns&) = delete;

  const WindowedCall& windows() const { return windows_; }

  SpecPtr columns() const {
    const DTensorSpec& rows = *windows_.result();
    const auto d = static_cast<size_t>(rows_dim_);
    std::vector<int64_t> shape = rows.shape();
    const int64_t per_row = shape[d + 1];
    shape.pop_back();
    shape[d] *= per_row;
    shape[d - 1] *= by_.values();
    Placements placements = rows.placements();
    const MeshDims by = mesh_dims_of_shards(placements, rows_dim_);
    if (by.size() == 1) {  // several cut evenly, see shards_evenly()
      std::vector<int64_t> lengths =
          lengths_along(rows.layout(), rows_dim_, by[0]);
      for (int64_t& length : lengths) {
        length *= per_row;
      }
      placements[static_cast<size_t>(by[0])] =
          shard_of_lengths(rows_dim_, std::move(lengths));
    }
    return DTensorSpec::make(rows.mesh(), placements, shape, rows.dtype());
  }
  // The padding of the operator on what the halo gives.
  std::vector<int64_t> local_padding() const {
    return {0, by_.along[1].padding};
  }
  int64_t rows_dim() const { return rows_dim_; }

 private:
  std::vector<int64_t> shape_of_windows(std::vector<int64_t> image) const {
    const auto d = static_cast<size_t>(rows_dim_);
    for (size_t i = 0; i < 2; ++i) {
      image[d + i] = by_.along[i].count(image[d + i]);
    }
    return image;
  }

  ColumnWindows by_;
  int64_t rows_dim_;
  WindowedCall windows_;
};

ColumnWindows windows_of(const DecomposedCall& decomposed) {
  return ColumnWindows([&](const char* name) {
    return decomposed.argument(name).toIntVector();
  });
}

void unfold_image(const OpCall& call) {
  DecomposedCall decomposed(call);
  const at::Tensor self = decomposed.tensor("self");
  const ShardedColumns columns(
      windows_of(decomposed), *decomposed.spec(self), self.sizes().vec());
  columns.windows().announce(decomposed, "self");
  const at::Tensor x =
      decomposed.shard("self", self, columns.windows().operand_placements());
  const SpecPtr result = columns.columns();
  decomposed.finish({decomposed.wrap(result, [&] {
    const at::Tensor read = columns.windows()
                                .halo(decomposed)
                                .gather(x, columns.windows().group(decomposed));
    if (c10::multiply_integers(result->local_shape()) == 0) {
      return at::empty(result->local_shape(), x.options());
    }
    return decomposed
        .run_operator({{"self", read}, {"padding", columns.local_padding()}})[0]
        .toTensor();
  })});
}

std::vector<int64_t> image_of_columns(
    std::vector<int64_t> shape, const std::vector<int64_t>& sizes,
    int64_t values) {
  shape[shape.size() - 2] /= values;
  shape.back() = sizes[0];
  shape.push_back(sizes[1]);
  return shape;
}

void fold_image(const OpCall& call) {
  DecomposedCall decomposed(call);
  const at::Tensor self = decomposed.tensor("self");
  const ColumnWindows by = windows_of(decomposed);
  const std::vector<int64_t> image = image_of_columns(
      self.sizes().vec(), decomposed.argument("output_size").toIntVector(),
      by.values());
  const ShardedColumns columns(by, *decomposed.spec(self), image);
  columns.windows().announce(decomposed, "self");
  const at::Tensor x =
      decomposed.shard("self", self, columns.columns()->placements());
  decomposed.finish({decomposed.wrap(columns.windows().operand(), [&] {
    const Halo halo = columns.windows().halo(decomposed);
    const std::vector<int64_t>& shape = halo.padded_shape();
    const at::Tensor sum =
        x.numel() == 0
            ? at::zeros(shape, x.options())
            : decomposed
                  .run_operator(
                      {{"self", x},
                       {"output_size",
                        std::vector<int64_t>(shape.end() - 2, shape.end())},
                       {"padding", columns.local_padding()}})[0]
                  .toTensor();
    return halo.scatter_sum(sum, columns.windows().group(decomposed));
  })});
}

ColumnWindows windows_of(const RuleCall& call) {
  return ColumnWindows([&](const char* name) { return call.integers(name); });
}

// Several mesh dims that all cut rows must cut them evenly, since lengths of
// one may not depend on the coordinate of another.
bool shards_evenly(
    const Placements& given, int64_t rows_dim, int64_t rows,
    const MeshShape& mesh) {
  int64_t parts = 1;
  int64_t cuts = 0;
  for (size_t m = 0; m < given.size(); ++m) {
    if (given[m].is_shard() && given[m].dim() >= rows_dim - 1) {
      parts *= mesh.size(static_cast<int64_t>(m));
      ++cuts;
    }
  }
  return cuts == 1 || rows % parts == 0;
}

bool unfold_is_sharded(const RuleCall& call) {
  const Operand& self = call.self();
  return (self.ndim() == 3 || self.ndim() == 4) &&
         shards_windows(*self.placements, self.ndim() - 3) &&
         c10::multiply_integers(self.shape) > 0 &&
         windows_of(call).are_valid(self.shape.slice(self.shape.size() - 2));
}
bool unfold_divides(const RuleCall& call, const MeshShape& mesh) {
  const Operand& self = call.self();
  const int64_t d = self.ndim() - 2;
  return shards_evenly(
      *self.placements, d,
      windows_of(call).along[0].count(self.shape[static_cast<size_t>(d)]),
      mesh);
}

bool fold_is_sharded(const RuleCall& call) {
  const Operand& self = call.self();
  if ((self.ndim() != 2 && self.ndim() != 3) ||
      c10::multiply_integers(self.shape) == 0 ||
      !shards_windows(*self.placements, self.ndim() - 2)) {
    return false;
  }
  const ColumnWindows by = windows_of(call);
  const std::vector<int64_t> sizes = call.integers("output_size");
  return by.are_valid(sizes) &&
         self.shape[self.shape.size() - 2] % by.values() == 0 &&
         self.shape.back() ==
             by.along[0].count(sizes[0]) * by.along[1].count(sizes[1]);
}
bool fold_divides(const RuleCall& call, const MeshShape& mesh) {
  return shards_evenly(
      *call.self().placements, call.self().ndim() - 1,
      windows_of(call).along[0].count(call.integers("output_size")[0]), mesh);
}

}  // namespace

void add_column_decompositions(OpRegistry& ops) {
  ops.at("aten::im2col").decomposition = {
      unfold_is_sharded, unfold_image, unfold_divides};
  ops.at("aten::col2im").decomposition = {
      fold_is_sharded, fold_image, fold_divides};
}

}  // namespace tessera::detail::inline tensor_layer
