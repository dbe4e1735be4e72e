// The largest and smallest values along a cut dim and where they are: values
// are combined first, then, of the ranks that hold the winner, the first place.
//
// Worked row: max of (3 7 | 7 5) -> winners 7 and 7 at 1 and 2 -> 7 at 1.
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/argmin.h>
#include <ATen/ops/full.h>
#include <ATen/ops/max.h>
#include <ATen/ops/min.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <tensor/decompositions/decomposed_call.h>
#include <tensor/decompositions/table.h>
#include <tensor/impl/sharded_impl.h>
#include <tensor/state/value_limits.h>

namespace tessera::detail::inline tensor_layer {

namespace {

constexpr int64_t kNowhere = std::numeric_limits<int64_t>::max();

// This rank's winners and their places in the global tensor.
struct Winners {
  at::Tensor values;
  at::Tensor indices;
};

// A shard without elements loses everywhere.
Winners no_winners(const at::Tensor& x, const SpecPtr& spec, bool largest) {
  const c10::ScalarType dtype = x.scalar_type();
  return {
      at::full(
          spec->local_shape(),
          largest ? smallest_value(dtype) : largest_value(dtype), x.options()),
      at::full(spec->local_shape(), kNowhere, x.options().dtype(at::kLong))};
}

Winners winners_along(
    const at::Tensor& x, int64_t dim, const DTensorSpec& spec, bool largest) {
  auto [values, indices] = largest ? at::max(x, dim, /*keepdim=*/true)
                                   : at::min(x, dim, /*keepdim=*/true);
  const at::Tensor global = positions(spec, dim, x.device());
  return {
      values,
      global.index_select(0, indices.reshape({-1})).reshape(indices.sizes())};
}

// Of all elements: the place is that in the flattened global tensor.
Winners winner_of_all(
    const at::Tensor& x, const DTensorSpec& spec, bool largest) {
  at::Tensor rest = largest ? at::argmax(x) : at::argmin(x);
  const at::Tensor value = x.reshape({-1}).index_select(0, rest.reshape({1}));
  at::Tensor flat_index = at::zeros({1}, rest.options());
  int64_t step = 1;
  for (int64_t d = x.dim() - 1; d >= 0; --d) {
    const at::Tensor index = rest.remainder(x.size(d)).reshape({1});
    rest = rest.div(x.size(d), "floor");
    flat_index = flat_index +
                 positions(spec, d, x.device()).index_select(0, index) * step;
    step *= spec.shape()[static_cast<size_t>(d)];
  }
  std::vector<int64_t> shape(spec.shape().size(), 1);
  return {value.reshape(shape), flat_index.reshape(shape)};
}

// The winners of all ranks.
Winners combine(
    DecomposedCall& decomposed, const Reduced& r, const Winners& mine,
    bool largest) {
  Winners all;
  all.values = decomposed.all_reduce(
      r.kept, r.over, largest ? ReduceOp::kMax : ReduceOp::kMin,
      [&] { return mine.values; });
  all.indices = decomposed.all_reduce(
      r.kept->with_dtype(at::kLong), r.over, ReduceOp::kMin, [&] {
        at::Tensor wins = mine.values.eq(all.values);
        if (mine.values.is_floating_point()) {
          wins = wins.logical_or(
              mine.values.isnan().logical_and(all.values.isnan()));
        }
        return at::where(wins, mine.indices, kNowhere);
      });
  return all;
}

void extreme(const OpCall& call, bool largest, bool returns_values) {
  DecomposedCall decomposed(call);
  const at::Tensor self = decomposed.tensor("self");
  const bool of_all = decomposed.argument("dim").isNone();
  const bool keepdim = decomposed.argument("keepdim").toBool();
  const Reduced r =
      reduced_by_call(decomposed, spec_of(self), self.scalar_type());
  const SpecPtr operand =
      spec_of(self).contiguous(r.operand, self.scalar_type());
  const at::Tensor x = decomposed.shard("self", self, r.operand);
  Winners mine;
  if (decomposed.computes()) {
    bool empty = false;
    for (const int64_t d : r.dims) {
      empty = empty || x.size(d) == 0;
    }
    mine = empty    ? no_winners(x, r.kept, largest)
           : of_all ? winner_of_all(x, *operand, largest)
                    : winners_along(x, r.dims[0], *operand, largest);
  }
  const Winners all = combine(decomposed, r, mine, largest);
  const SpecPtr result = r.spec(keepdim);
  std::vector<c10::IValue> results;
  if (returns_values) {
    results.emplace_back(decomposed.wrap(
        result, [&] { return all.values.reshape(result->local_shape()); }));
  }
  results.emplace_back(decomposed.wrap(result->with_dtype(at::kLong), [&] {
    return all.indices.reshape(result->local_shape());
  }));
  decomposed.finish(std::move(results));
}

void max_dim(const OpCall& call) {
  extreme(call, /*largest=*/true, /*returns_values=*/true);
}
void min_dim(const OpCall& call) {
  extreme(call, /*largest=*/false, /*returns_values=*/true);
}
void argmax(const OpCall& call) {
  extreme(call, /*largest=*/true, /*returns_values=*/false);
}
void argmin(const OpCall& call) {
  extreme(call, /*largest=*/false, /*returns_values=*/false);
}

// Both extremes of parts are parts of the extremes: nothing is sent.
void aminmax(const OpCall& call) {
  DecomposedCall decomposed(call);
  const at::Tensor self = decomposed.tensor("self");
  const bool keepdim = decomposed.argument("keepdim").toBool();
  const Reduced r =
      reduced_by_call(decomposed, spec_of(self), self.scalar_type());
  const at::Tensor x = decomposed.shard("self", self, r.operand);
  const auto part = [&](ReduceOp op) {
    Placements placements = r.spec(keepdim)->placements();
    for (const int64_t m : r.over) {
      placements[static_cast<size_t>(m)] = Partial(op);
    }
    const SpecPtr spec =
        r.spec(keepdim)->contiguous(placements, self.scalar_type());
    return decomposed.wrap(spec, [&] {
      for (const int64_t d : r.dims) {
        if (x.size(d) == 0) {
          return no_winners(x, spec, op == ReduceOp::kMax).values;
        }
      }
      return op == ReduceOp::kMax ? at::amax(x, r.dims, keepdim)
                                  : at::amin(x, r.dims, keepdim);
    });
  };
  decomposed.finish({part(ReduceOp::kMin), part(ReduceOp::kMax)});
}

// ATen refuses to look for the largest of nothing.
bool is_sharded_and_not_empty(const RuleCall& call) {
  const std::vector<bool> dims = named_dims(call, call.self().ndim());
  for (size_t d = 0; d < dims.size(); ++d) {
    if (dims[d] && call.self().shape[d] == 0) {
      return false;
    }
  }
  return shards_named_dim(call);
}

}  // namespace

void add_extreme_decompositions(OpRegistry& ops) {
  ops.at("aten::max.dim").decomposition = {is_sharded_and_not_empty, max_dim};
  ops.at("aten::min.dim").decomposition = {is_sharded_and_not_empty, min_dim};
  ops.at("aten::argmax").decomposition = {is_sharded_and_not_empty, argmax};
  ops.at("aten::argmin").decomposition = {is_sharded_and_not_empty, argmin};
  ops.at("aten::aminmax").decomposition = {is_sharded_and_not_empty, aminmax};
}

}  // namespace tessera::detail::inline tensor_layer
