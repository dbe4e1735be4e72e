// topk along a dim that one mesh dim cuts: the best k of each rank are the
// candidates, and k of n * k are chosen on every rank alike.
//
// A candidate travels with its place, 8 bytes. Where k is no small part of a
// shard that is more than the tensor itself, and the rule's rows are taken.
#include <algorithm>
#include <numeric>

#include <ATen/ops/topk.h>
#include <c10/util/Exception.h>
#include <c10/util/accumulate.h>
#include <tensor/decompositions/decomposed_call.h>
#include <tensor/decompositions/table.h>
#include <tensor/impl/sharded_impl.h>
#include <tessera/tensor/machine_model.h>

namespace tessera::detail::inline tensor_layer {

namespace {

// How many candidates the ranks along mesh dim `m` send each.
std::vector<int64_t> candidates_along(
    const Layout& layout, int64_t dim, int64_t m, int64_t k) {
  std::vector<int64_t> lengths = lengths_along(layout, dim, m);
  for (int64_t& length : lengths) {
    length = std::min(length, k);
  }
  return lengths;
}

void topk(const OpCall& call) {
  DecomposedCall decomposed(call);
  const at::Tensor self = decomposed.tensor("self");
  const int64_t k = decomposed.argument("k").toInt();
  const bool largest = decomposed.argument("largest").toBool();
  const bool sorted = decomposed.argument("sorted").toBool();
  const c10::ScalarType dtype = self.scalar_type();
  const Reduced r = reduced_by_call(decomposed, spec_of(self), dtype);
  const int64_t dim = r.dims[0];
  const SpecPtr operand = spec_of(self).contiguous(r.operand, dtype);
  const std::vector<int64_t> lengths =
      candidates_along(operand->layout(), dim, r.over[0], k);
  const at::Tensor x = decomposed.shard("self", self, r.operand);
  at::Tensor values, indices;
  if (decomposed.computes()) {
    std::tie(values, indices) =
        at::topk(x, std::min(k, x.size(dim)), dim, largest, /*sorted=*/true);
    const at::Tensor global = positions(*operand, dim, x.device());
    indices =
        global.index_select(0, indices.reshape({-1})).reshape(indices.sizes());
  }
  const at::Tensor all_values = decomposed.all_gather(
      *r.kept, dim, r.over[0], lengths, [&] { return values; });
  const at::Tensor all_indices = decomposed.all_gather(
      *r.kept->with_dtype(at::kLong), dim, r.over[0], lengths,
      [&] { return indices; });
  if (decomposed.computes()) {
    at::Tensor chosen;
    std::tie(values, chosen) = at::topk(all_values, k, dim, largest, sorted);
    indices = all_indices.gather(dim, chosen);
  }
  std::vector<int64_t> shape = r.kept->shape();
  shape[static_cast<size_t>(dim)] = k;
  const auto result = [&](const at::Tensor& t, c10::ScalarType type) {
    return decomposed.wrap(
        DTensorSpec::make(decomposed.mesh(), r.kept->placements(), shape, type),
        [&] { return t; });
  };
  decomposed.finish({result(values, dtype), result(indices, at::kLong)});
}

bool topk_applies(const RuleCall& call) {
  if (call.self().ndim() == 0) {
    return false;
  }
  const int64_t dim = wrap_dim(call.integer("dim"), call.self().ndim());
  const int64_t k = call.integer("k");
  return k >= 0 && k <= call.self().shape[static_cast<size_t>(dim)] &&
         mesh_dims_of_shards(*call.self().placements, dim).size() == 1;
}

// An all_gather of G elements among n ranks sends G - G / n, rounded down: less
// than one element more than its share. A candidate too many per row makes up
// for that, so that what is true of one row is true of any number of them.
//
// Worked row, f32, 2 ranks: k = 2 of 16 -> 5 x 12 <= 16 x 4; k = 3 -> 7 x 12 >
// 16 x 4.
//
// Whatever it sends, it pays where the tensor does not fit.
bool topk_pays(const RuleCall& call, const MeshShape& mesh) {
  const Operand& self = call.self();
  if (c10::multiply_integers(self.shape) *
          static_cast<int64_t>(c10::elementSize(self.dtype)) >
      machine_model().memory_limit) {
    return true;
  }
  const int64_t dim = wrap_dim(call.integer("dim"), self.ndim());
  const Layout layout(
      self.shape.vec(), mesh, without_partials(*self.placements));
  const std::vector<int64_t> candidates = candidates_along(
      layout, dim, mesh_dims_of_shards(*self.placements, dim)[0],
      call.integer("k"));
  const int64_t count =
      std::accumulate(candidates.begin(), candidates.end(), int64_t{1});
  const auto value = static_cast<int64_t>(c10::elementSize(self.dtype));
  const auto place = static_cast<int64_t>(c10::elementSize(at::kLong));
  return count * (value + place) <=
         self.shape[static_cast<size_t>(dim)] * value;
}

}  // namespace

void add_topk_decompositions(OpRegistry& ops) {
  ops.at("aten::topk").decomposition = {topk_applies, topk, topk_pays};
}

}  // namespace tessera::detail::inline tensor_layer
