// Views: operators that rename or pick elements of one tensor. A view of
// partial values is a partial value of the view, so Partial stays unless
// elements change their meaning (other dtypes).
#include <algorithm>

#include <base/text.h>
#include <c10/util/Exception.h>
#include <layout/cut.h>
#include <rules/all_rules.h>
#include <rules/families/view_layout.h>
#include <rules/rule_entry.h>

namespace tessera::detail::inline rules_layer {

namespace {

using Dims = std::vector<int64_t>;
using Coordinate = std::vector<int64_t>;

size_t at(int64_t i) {
  return static_cast<size_t>(i);
}

// Adds a result whose dims are these dims of the operand.
void add_picked(ViewMaker& view, const Dims& picked, int64_t offset = 0) {
  Dims to(at(view.ndim()), kNoDim), shape, strides;
  for (const int64_t d : picked) {
    to[at(d)] = static_cast<int64_t>(shape.size());
    shape.push_back(view.size(d));
    strides.push_back(view.stride(d));
  }
  view.add(std::move(shape), std::move(strides), view.mapped(to), offset);
}

Dims all_dims(const ViewMaker& view) {
  Dims dims;
  for (int64_t d = 0; d < view.ndim(); ++d) {
    dims.push_back(d);
  }
  return dims;
}

ViewLayout same_view(
    const RuleCall& call, const MeshShape& mesh, const Coordinate*) {
  ViewMaker view(call, mesh);
  add_picked(view, all_dims(view));
  return view.take();
}

// A flag on the same memory: conjugates and negatives add up to that of the
// sum, but turn the order of numbers.
ViewLayout flag_view(
    const RuleCall& call, const MeshShape& mesh,
    const std::vector<int64_t>* /*coordinate*/) {
  ViewMaker view(call, mesh);
  view.keep_partial({ReduceOp::kSum, ReduceOp::kAvg});
  view.add(view.shape(), view.strides(), view.placements());
  return view.take();
}

ViewLayout permute_view(
    const RuleCall& call, const MeshShape& mesh, const Coordinate*) {
  ViewMaker view(call, mesh);
  Dims dims = call.integers("dims");
  for (int64_t& d : dims) {
    d = wrap_dim(d, view.ndim());
  }
  Dims sorted = dims;
  std::sort(sorted.begin(), sorted.end());
  TORCH_CHECK(
      sorted == all_dims(view), call.schema().name(),
      ": every dim of the tensor must be named once; it has ", view.ndim(),
      ", got [", base::join(dims, ", "), "]");
  add_picked(view, dims);
  return view.take();
}

ViewLayout transpose_view(
    const RuleCall& call, const MeshShape& mesh, const Coordinate*) {
  ViewMaker view(call, mesh);
  Dims dims = all_dims(view);
  const int64_t a = wrap_dim(call.integer("dim0"), view.ndim());
  const int64_t b = wrap_dim(call.integer("dim1"), view.ndim());
  if (!dims.empty()) {
    std::swap(dims[at(a)], dims[at(b)]);
  }
  add_picked(view, dims);
  return view.take();
}

ViewLayout t_view(
    const RuleCall& call, const MeshShape& mesh, const Coordinate*) {
  ViewMaker view(call, mesh);
  Dims dims = all_dims(view);
  TORCH_CHECK(
      dims.size() <= 2, call.schema().name(),
      ": the tensor must have at most 2 dims; got ", dims.size());
  std::reverse(dims.begin(), dims.end());
  add_picked(view, dims);
  return view.take();
}

// The local call drops every dim that it names and that has one index there. A
// dim that is longer may have one index on some rank only: a list names the
// others alone there, and other forms have a kernel that does (local_views.h).
ViewLayout squeeze_view(
    const RuleCall& call, const MeshShape& mesh, const Coordinate*) {
  ViewMaker view(call, mesh);
  const bool is_named = call.has_argument("dim");
  std::vector<bool> named(at(std::max<int64_t>(view.ndim(), 1)), !is_named);
  if (is_named) {
    for (const int64_t d : call.integers("dim")) {
      named[at(wrap_dim(d, view.ndim()))] = true;
    }
  }
  Dims kept, squeezed;
  for (int64_t d = 0; d < view.ndim(); ++d) {
    (named[at(d)] && view.size(d) == 1 ? squeezed : kept).push_back(d);
  }
  const bool names_list = is_named && !call.argument("dim").isInt();
  add_picked(view, kept);
  if (names_list && view.has_shards()) {
    view.local_argument("dim", squeezed);
  }
  return view.take();
}

ViewLayout unsqueeze_view(
    const RuleCall& call, const MeshShape& mesh, const Coordinate*) {
  ViewMaker view(call, mesh);
  const int64_t dim = wrap_dim(call.integer("dim"), view.ndim() + 1);
  Dims to, shape = view.shape(), strides = view.strides();
  for (int64_t d = 0; d < view.ndim(); ++d) {
    to.push_back(d < dim ? d : d + 1);
  }
  const int64_t step =
      dim < view.ndim() ? view.size(dim) * view.stride(dim) : 1;
  shape.insert(shape.begin() + dim, 1);
  strides.insert(strides.begin() + dim, step);
  view.add(std::move(shape), std::move(strides), view.mapped(to));
  return view.take();
}

// Dims of size 1 grow, and new ones come in front.
ViewLayout expand_view(
    const RuleCall& call, const MeshShape& mesh, const Coordinate* coordinate) {
  ViewMaker view(call, mesh);
  Dims shape = call.integers("size");
  const auto ndim = static_cast<int64_t>(shape.size());
  const int64_t added = ndim - view.ndim();
  TORCH_CHECK(
      added >= 0, call.schema().name(), ": wants at least the ", view.ndim(),
      " dims of the tensor; got [", base::join(shape, ", "), "]");
  Dims to(at(view.ndim()), kNoDim), strides(at(ndim));
  for (int64_t d = ndim - 1; d >= 0; --d) {
    const int64_t from = d - added;
    const int64_t size = from >= 0 ? view.size(from) : 1;
    int64_t& wanted = shape[at(d)];
    wanted = wanted == -1 && from >= 0 ? size : wanted;
    TORCH_CHECK(
        wanted == size || (size == 1 && wanted >= 0), call.schema().name(),
        ": only dims of size 1 grow; dim ", d, " has size ", size, ", wanted ",
        wanted);
    if (from >= 0) {
      strides[at(d)] = view.stride(from);
    } else if (view.ndim() > 0) {
      strides[at(d)] = shape[at(d + 1)] * strides[at(d + 1)];
    }
    if (wanted != size) {
      strides[at(d)] = 0;
    } else if (from >= 0) {
      to[at(from)] = d;
    }
  }
  view.add(std::move(shape), std::move(strides), view.mapped(to));
  view.local_shape_argument("size", coordinate);
  return view.take();
}

Dims without(Dims dims, int64_t dim) {
  dims.erase(std::remove(dims.begin(), dims.end(), dim), dims.end());
  return dims;
}

int64_t worked_dim(const ViewMaker& view, const char* name) {
  TORCH_CHECK_INDEX(
      view.ndim() > 0, view.call().schema().name(),
      ": a 0-d tensor has no dim");
  return wrap_dim(view.call().integer(name), view.ndim());
}

// The coordinate that holds an index of a dim; -1 where there is none.
int64_t holder_of(
    const Placement& p, int64_t size, int64_t parts, int64_t index) {
  for (int64_t r = 0; r < parts; ++r) {
    for (const Run& run : cut_runs(p, size, parts, r)) {
      if (run.begin <= index && index < run.end) {
        return r;
      }
    }
  }
  return -1;
}

// An index of a dim that one mesh dim cuts lies on one of its coordinates: the
// result stays there, which a ragged cut of another dim can say.
//   [8, 3] S(0) over 2, index 5 -> [3] RS(0,[0,3])
bool add_selected(ViewMaker& view, int64_t dim, int64_t index) {
  if (view.cuts(dim).size() != 1 || is_copy(view.call())) {
    return false;
  }
  const std::optional<int64_t> beside =
      unsharded_dim_beside(view.layout(), dim);
  const auto m = at(view.cuts(dim)[0]);
  const int64_t parts = view.mesh().size(static_cast<int64_t>(m));
  const int64_t holder =
      holder_of(view.placements()[m], view.size(dim), parts, index);
  if (!beside || holder < 0) {
    return false;
  }
  const Dims picked = without(all_dims(view), dim);
  Dims to(at(view.ndim()), 0), shape, strides;
  for (const int64_t d : picked) {
    to[at(d)] = static_cast<int64_t>(shape.size());
    shape.push_back(view.size(d));
    strides.push_back(view.stride(d));
  }
  Dims lengths(at(parts), 0);
  lengths[at(holder)] = view.size(*beside);
  Placements placements = view.mapped(to);
  placements[m] = shard_of_lengths(to[at(*beside)], std::move(lengths));
  view.add(
      std::move(shape), std::move(strides), std::move(placements),
      index * view.stride(dim));
  view.run_by(RunBy::kSelect);
  return true;
}

ViewLayout select_view(
    const RuleCall& call, const MeshShape& mesh, const Coordinate*) {
  ViewMaker view(call, mesh);
  const int64_t dim = worked_dim(view, "dim");
  const int64_t given = call.integer("index");
  const int64_t index = given < 0 ? given + view.size(dim) : given;
  if (!add_selected(view, dim, index)) {
    add_picked(view, without(all_dims(view), dim), index * view.stride(dim));
  }
  return view.take();
}

ViewLayout unbind_view(
    const RuleCall& call, const MeshShape& mesh, const Coordinate*) {
  ViewMaker view(call, mesh);
  const int64_t dim = worked_dim(view, "dim");
  int64_t stay = 0;
  while (stay < view.size(dim) && add_selected(view, dim, stay)) {
    ++stay;
  }
  if (stay > 0) {
    return view.take();  // what one index can, all can
  }
  view.drop_shards(dim);
  for (int64_t i = 0; i < view.size(dim); ++i) {
    add_picked(view, without(all_dims(view), dim), i * view.stride(dim));
  }
  return view.take();
}

ViewLayout unfold_view(
    const RuleCall& call, const MeshShape& mesh, const Coordinate*) {
  ViewMaker view(call, mesh);
  const int64_t dim = wrap_dim(call.integer("dimension"), view.ndim());
  const int64_t length = call.integer("size"), step = call.integer("step");
  const bool is_scalar = view.ndim() == 0;
  const int64_t size = is_scalar ? 1 : view.size(dim);
  const int64_t stride = is_scalar ? 1 : view.stride(dim);
  TORCH_CHECK(
      length >= 0 && length <= size && step > 0, call.schema().name(),
      ": windows must fit into the dim and the step be positive; got length ",
      length, ", step ", step, " for a dim of size ", size);
  Dims shape = view.shape(), strides = view.strides();
  Dims to = all_dims(view);
  if (!is_scalar) {
    shape[at(dim)] = (size - length) / step + 1;
    strides[at(dim)] *= step;
    to[at(dim)] = kNoDim;
  }
  shape.push_back(length);
  strides.push_back(stride);
  view.add(std::move(shape), std::move(strides), view.mapped(to));
  return view.take();
}

// A diagonal crosses the rows of each rank in one run, so a cut of one of its
// dims stays, and each rank shows its part by an offset of its own.
//   [4, 6] S(0) over 2 -> [4] S(0); offset 0 on rank 0, 2 on rank 1
struct DiagonalSplit {
  int64_t dim = 0;  // of the operand, cut by one mesh dim alone
  int64_t mesh_dim = 0;
  Dims lengths = {};  // per coordinate
  Dims begins = {};   // of the rows of each coordinate
};

std::optional<DiagonalSplit> diagonal_split(
    ViewMaker& view, int64_t a, int64_t b, int64_t offset, int64_t length) {
  if (view.is_sharded(a) && view.is_sharded(b)) {
    view.drop_shards(b);
  }
  DiagonalSplit split;
  split.dim = view.is_sharded(a) ? a : b;
  const std::vector<int64_t> cuts = view.cuts(split.dim);
  if (cuts.size() != 1 || !view.placements()[at(cuts[0])].is_contiguous()) {
    return std::nullopt;
  }
  split.mesh_dim = cuts[0];
  const int64_t first = std::max<int64_t>(0, split.dim == a ? -offset : offset);
  const int64_t parts = view.mesh().size(split.mesh_dim);
  for (int64_t r = 0; r < parts; ++r) {
    const Runs runs = cut_runs(
        view.placements()[at(split.mesh_dim)], view.size(split.dim), parts, r);
    const Run rows = runs.empty() ? Run{0, 0} : runs[0];
    split.begins.push_back(rows.begin);
    split.lengths.push_back(std::max<int64_t>(
        0, std::min(length, rows.end - first) -
               std::max<int64_t>(0, rows.begin - first)));
  }
  return split;
}

ViewLayout diagonal_view(
    const RuleCall& call, const MeshShape& mesh, const Coordinate* coordinate) {
  ViewMaker view(call, mesh);
  const int64_t a = worked_dim(view, "dim1"), b = worked_dim(view, "dim2");
  TORCH_CHECK(
      a != b, call.schema().name(), ": the dims must differ; got ", a,
      " twice");
  const int64_t offset = call.integer("offset");
  const int64_t length = std::max<int64_t>(
      0, std::min(
             view.size(a) + std::min<int64_t>(offset, 0),
             view.size(b) - std::max<int64_t>(offset, 0)));
  Dims to(at(view.ndim()), kNoDim), shape, strides;
  for (const int64_t d : without(without(all_dims(view), a), b)) {
    to[at(d)] = static_cast<int64_t>(shape.size());
    shape.push_back(view.size(d));
    strides.push_back(view.stride(d));
  }
  shape.push_back(length);
  strides.push_back(view.stride(a) + view.stride(b));
  const int64_t first =
      offset < 0 ? -offset * view.stride(a) : offset * view.stride(b);
  const auto split = diagonal_split(view, a, b, offset, length);
  const auto last = static_cast<int64_t>(shape.size()) - 1;
  if (split) {
    to[at(split->dim)] = last;
  }
  Placements placements = view.mapped(to);
  if (split) {
    placements[at(split->mesh_dim)] = shard_of_lengths(last, split->lengths);
    if (coordinate != nullptr) {
      const int64_t begin =
          split->begins[at((*coordinate)[at(split->mesh_dim)])];
      view.local_argument(
          "offset", split->dim == a ? offset + begin : offset - begin);
    }
  }
  view.add(
      std::move(shape), std::move(strides), std::move(placements),
      length > 0 ? first : 0);
  return view.take();
}

// The greater of two complex numbers, or a product of them, is not that of
// their parts.
ViewLayout real_view(
    const RuleCall& call, const MeshShape& mesh, const Coordinate*) {
  ViewMaker view(call, mesh);
  view.keep_partial({ReduceOp::kSum, ReduceOp::kAvg});
  Dims shape = view.shape(), strides = view.strides();
  for (int64_t& stride : strides) {
    stride *= 2;
  }
  shape.push_back(2);
  strides.push_back(1);
  view.add(std::move(shape), std::move(strides), view.mapped(all_dims(view)));
  return view.take();
}

ViewLayout complex_view(
    const RuleCall& call, const MeshShape& mesh, const Coordinate*) {
  ViewMaker view(call, mesh);
  view.keep_partial({ReduceOp::kSum, ReduceOp::kAvg});
  Dims dims = all_dims(view);
  TORCH_CHECK(
      !dims.empty() && view.size(dims.back()) == 2, call.schema().name(),
      ": the last dim must have size 2; got [", base::join(view.shape(), ", "),
      "]");
  dims.pop_back();
  Dims to = dims, shape, strides;
  to.push_back(kNoDim);
  for (const int64_t d : dims) {
    shape.push_back(view.size(d));
    strides.push_back(view.stride(d) / 2);
  }
  view.add(std::move(shape), std::move(strides), view.mapped(to));
  return view.take();
}

// Bits of partial values are no partial values. Elements of another width
// change the last dim and all strides.
ViewLayout dtype_view(
    const RuleCall& call, const MeshShape& mesh, const Coordinate*) {
  ViewMaker view(call, mesh);
  const auto dtype = call.argument("dtype").toScalarType();
  if (dtype != call.self().dtype) {
    view.keep_partial({});
  }
  const auto from = static_cast<int64_t>(c10::elementSize(call.self().dtype));
  const auto to = static_cast<int64_t>(c10::elementSize(dtype));
  Dims dims = all_dims(view), shape = view.shape(), strides = view.strides();
  if (from != to) {
    TORCH_CHECK(
        !dims.empty() && strides.back() == 1 && shape.back() * from % to == 0,
        call.schema().name(), ": a view of elements of ", to,
        " bytes wants a last dim without gaps that they fill; got [",
        base::join(shape, ", "), "] of elements of ", from, " bytes");
    dims.back() = kNoDim;
    shape.back() = shape.back() * from / to;
    for (size_t d = 0; d + 1 < strides.size(); ++d) {
      strides[d] = strides[d] * from / to;
    }
  }
  view.add(std::move(shape), std::move(strides), view.mapped(dims));
  return view.take();
}

}  // namespace

void add_view_rules(RuleTable& t) {
  t.view(
      {"aten::view", "aten::_unsafe_view", "aten::_reshape_alias",
       "aten::_reshape_copy"},
      reshape_view);
  t.view({"aten::view.dtype"}, dtype_view);
  t.view({"aten::view_as_real"}, real_view);
  t.view({"aten::view_as_complex"}, complex_view);
  t.view({"aten::lift_fresh"}, same_view);
  t.view({"aten::_conj", "aten::_neg_view"}, flag_view);
  t.view({"aten::expand"}, expand_view);
  t.view({"aten::permute"}, permute_view);
  t.view({"aten::transpose.int"}, transpose_view);
  t.view({"aten::t"}, t_view);
  t.view({"aten::squeeze", "aten::squeeze.dim"}, squeeze_view)
      .local(RunBy::kSqueeze);
  t.view({"aten::squeeze.dims"}, squeeze_view);
  t.view({"aten::unsqueeze"}, unsqueeze_view);
  t.view({"aten::slice.Tensor"}, slice_view);
  t.view({"aten::select.int"}, select_view);
  t.view(
      {"aten::split.Tensor", "aten::split_with_sizes",
       "aten::unsafe_split.Tensor", "aten::unsafe_split_with_sizes"},
      split_view);
  t.view({"aten::unbind.int"}, unbind_view);
  t.view({"aten::unfold"}, unfold_view);
  t.view({"aten::diagonal"}, diagonal_view);
}

}  // namespace tessera::detail::inline rules_layer
