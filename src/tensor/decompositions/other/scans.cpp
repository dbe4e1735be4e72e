// Running sums and their kin along a dim that one mesh dim cuts: each rank
// scans its run, and what the runs before it come to is added. One all_gather
// of a slice per rank.
//
// Worked row, cumsum: (1 2 | 3 4) -> (1 3 | 3 7), slices 3 and 7 -> the second
// rank adds 3 -> (1 3 | 6 10). Ranks without elements give no slice.
#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cummax.h>
#include <ATen/ops/cummin.h>
#include <ATen/ops/cumprod.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/logcumsumexp.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/where.h>
#include <tensor/decompositions/decomposed_call.h>
#include <tensor/decompositions/table.h>
#include <tensor/impl/sharded_impl.h>

namespace tessera::detail::inline tensor_layer {

namespace {

// The dim that is scanned, and how it is cut.
struct ScannedDim {
  explicit ScannedDim(DecomposedCall& decomposed)
      : self(decomposed.tensor("self")),
        reduced(reduced_by_call(decomposed, spec_of(self), self.scalar_type())),
        dim(reduced.dims[0]),
        mesh_dim(reduced.over[0]),
        operand(spec_of(self).contiguous(reduced.operand, self.scalar_type())),
        slices(lengths_along(operand->layout(), dim, mesh_dim)) {
    for (int64_t& length : slices) {
      length = std::min<int64_t>(length, 1);
    }
    if (decomposed.computes()) {
      const auto me = decomposed.coordinate()[static_cast<size_t>(mesh_dim)];
      before = std::count(slices.begin(), slices.begin() + me, 1);
    }
  }

  // What the ranks before this one gave: slices of `scanned`, the last of each.
  at::Tensor prefix(
      DecomposedCall& decomposed, const at::Tensor& scanned,
      c10::ScalarType dtype) const {
    const at::Tensor all = decomposed.all_gather(
        *reduced.kept->with_dtype(dtype), dim, mesh_dim, slices, [&] {
          const int64_t length = scanned.size(dim);
          return scanned.narrow(
              dim, std::max<int64_t>(length - 1, 0),
              std::min<int64_t>(length, 1));
        });
    return decomposed.computes() ? all.narrow(dim, 0, before) : at::Tensor();
  }

  at::Tensor self;
  Reduced reduced;
  int64_t dim;
  int64_t mesh_dim;
  SpecPtr operand;
  std::vector<int64_t> slices;  // per coordinate: 1, or 0 without elements
  int64_t before = 0;           // slices of the ranks before this one
};

// One result; `scan` a run, `total` of the slices before, `join` both.
template <class Scan, class Total, class Join>
void scan_of(
    const OpCall& call, c10::ScalarType dtype, Scan scan, Total total,
    Join join) {
  DecomposedCall decomposed(call);
  const ScannedDim along(decomposed);
  const c10::ScalarType computed = sum_type(dtype);
  const at::Tensor x =
      decomposed.shard("self", along.self, along.reduced.operand);
  const at::Tensor run = x.defined() ? scan(x.to(computed), along.dim) : x;
  const at::Tensor before = along.prefix(decomposed, run, computed);
  decomposed.finish({decomposed.wrap(along.operand->with_dtype(dtype), [&] {
    return (along.before == 0 ? run : join(run, total(before, along.dim)))
        .to(dtype);
  })});
}

c10::ScalarType scanned_type(const OpCall& call) {
  const c10::IValue& given = call.argument(2);
  const c10::ScalarType own = call.argument(0).toTensor().scalar_type();
  if (!given.isNone()) {
    return given.toScalarType();
  }
  return c10::isIntegralType(own, /*includeBool=*/true) ? at::kLong : own;
}

void cumsum(const OpCall& call) {
  scan_of(
      call, scanned_type(call),
      [](const at::Tensor& x, int64_t dim) { return at::cumsum(x, dim); },
      [](const at::Tensor& x, int64_t dim) { return x.sum(dim, true); },
      [](const at::Tensor& x, const at::Tensor& y) { return x + y; });
}

void cumprod(const OpCall& call) {
  scan_of(
      call, scanned_type(call),
      [](const at::Tensor& x, int64_t dim) { return at::cumprod(x, dim); },
      [](const at::Tensor& x, int64_t dim) { return x.prod(dim, true); },
      [](const at::Tensor& x, const at::Tensor& y) { return x * y; });
}

void logcumsumexp(const OpCall& call) {
  scan_of(
      call, call.argument(0).toTensor().scalar_type(),
      [](const at::Tensor& x, int64_t dim) { return at::logcumsumexp(x, dim); },
      [](const at::Tensor& x, int64_t dim) {
        return at::logsumexp(x, dim, /*keepdim=*/true);
      },
      [](const at::Tensor& x, const at::Tensor& y) {
        return at::logaddexp(x, y);
      });
}

// Where the run's own extreme stands against that of the runs before it: later
// ones win, and so does NaN.
at::Tensor run_wins(
    const at::Tensor& run, const at::Tensor& before, bool largest) {
  const at::Tensor better = largest ? run.ge(before) : run.le(before);
  if (!run.is_floating_point()) {
    return better;
  }
  return better.logical_and(before.isnan().logical_not())
      .logical_or(run.isnan());
}

void running_extreme(const OpCall& call, bool largest) {
  DecomposedCall decomposed(call);
  const ScannedDim along(decomposed);
  const auto scan = [&](const at::Tensor& x) {
    return largest ? at::cummax(x, along.dim) : at::cummin(x, along.dim);
  };
  const at::Tensor x =
      decomposed.shard("self", along.self, along.reduced.operand);
  at::Tensor values, indices;
  if (decomposed.computes()) {
    std::tie(values, indices) = scan(x);
    const at::Tensor global = positions(*along.operand, along.dim, x.device());
    indices =
        global.index_select(0, indices.reshape({-1})).reshape(indices.sizes());
  }
  const c10::ScalarType dtype = along.self.scalar_type();
  const at::Tensor values_before = along.prefix(decomposed, values, dtype);
  const at::Tensor indices_before =
      along.prefix(decomposed, indices, at::kLong);
  if (along.before > 0) {
    const auto [best, at] = scan(values_before);
    const int64_t last = along.before - 1;
    const at::Tensor value = best.narrow(along.dim, last, 1);
    const at::Tensor global_index =
        indices_before.gather(along.dim, at.narrow(along.dim, last, 1));
    const at::Tensor wins = run_wins(values, value, largest);
    values = at::where(wins, values, value);
    indices = at::where(wins, indices, global_index);
  }
  decomposed.finish(
      {decomposed.wrap(along.operand, [&] { return values; }),
       decomposed.wrap(
           along.operand->with_dtype(at::kLong), [&] { return indices; })});
}

void cummax(const OpCall& call) {
  running_extreme(call, /*largest=*/true);
}
void cummin(const OpCall& call) {
  running_extreme(call, /*largest=*/false);
}

// Runs must lie one after the other in the order of coordinates.
bool one_run_per_rank(const RuleCall& call) {
  if (call.self().ndim() == 0 || c10::isComplexType(call.self().dtype)) {
    return false;
  }
  const int64_t dim = wrap_dim(call.integer("dim"), call.self().ndim());
  const Placements& placements = *call.self().placements;
  const MeshDims mesh_dims = mesh_dims_of_shards(placements, dim);
  return mesh_dims.size() == 1 &&
         placements[static_cast<size_t>(mesh_dims[0])].is_contiguous();
}

}  // namespace

void add_scan_decompositions(OpRegistry& ops) {
  ops.at("aten::cumsum").decomposition = {one_run_per_rank, cumsum};
  ops.at("aten::cumprod").decomposition = {one_run_per_rank, cumprod};
  ops.at("aten::logcumsumexp").decomposition = {one_run_per_rank, logcumsumexp};
  ops.at("aten::cummax").decomposition = {one_run_per_rank, cummax};
  ops.at("aten::cummin").decomposition = {one_run_per_rank, cummin};
}

}  // namespace tessera::detail::inline tensor_layer
