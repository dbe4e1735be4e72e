// topk along a dim that one mesh dim cuts: the best k of each rank are the
// candidates, and k of n * k are chosen on every rank alike.
#include <algorithm>

#include <ATen/ops/topk.h>
#include <c10/util/Exception.h>
#include <tensor/decompositions/cut_call.h>
#include <tensor/decompositions/families.h>

namespace tessera::detail {

namespace {

void topk(const OpCall& call) {
  CutCall cut(call);
  const at::Tensor self = cut.tensor("self");
  const int64_t k = cut.argument("k").toInt();
  const bool largest = cut.argument("largest").toBool();
  const bool sorted = cut.argument("sorted").toBool();
  const c10::ScalarType dtype = self.scalar_type();
  const Reduced r = reduced_by_call(cut, spec_of(self), dtype);
  const int64_t dim = r.dims[0];
  const SpecPtr operand = with_placements(spec_of(self), r.operand, dtype);
  std::vector<int64_t> lengths = lengths_along(*operand, dim, r.over[0]);
  for (int64_t& length : lengths) {
    length = std::min(length, k);
  }
  const at::Tensor x = cut.shard("self", self, r.operand);
  at::Tensor values, places;
  if (cut.computes()) {
    std::tie(values, places) =
        at::topk(x, std::min(k, x.size(dim)), dim, largest, /*sorted=*/true);
    const at::Tensor global = positions(*operand, dim, x.device());
    places =
        global.index_select(0, places.reshape({-1})).reshape(places.sizes());
  }
  const at::Tensor all_values =
      cut.all_gather(*r.kept, dim, r.over[0], lengths, [&] { return values; });
  const at::Tensor all_places = cut.all_gather(
      *with_dtype(*r.kept, at::kLong), dim, r.over[0], lengths,
      [&] { return places; });
  if (cut.computes()) {
    at::Tensor chosen;
    std::tie(values, chosen) = at::topk(all_values, k, dim, largest, sorted);
    places = all_places.gather(dim, chosen);
  }
  std::vector<int64_t> shape = r.kept->shape();
  shape[static_cast<size_t>(dim)] = k;
  const auto result = [&](const at::Tensor& t, c10::ScalarType type) {
    return cut.wrap(
        DTensorSpec::make(cut.mesh(), r.kept->placements(), shape, type),
        [&] { return t; });
  };
  cut.finish({result(values, dtype), result(places, at::kLong)});
}

bool topk_applies(const RuleCall& call) {
  if (call.self().ndim() == 0) {
    return false;
  }
  const int64_t dim = wrap_dim(call.integer("dim"), call.self().ndim());
  const int64_t k = call.integer("k");
  return k >= 0 && k <= call.self().shape[static_cast<size_t>(dim)] &&
         cuts_of(*call.self().placements, dim).size() == 1;
}

}  // namespace

void add_topk_decompositions(Decompositions& all) {
  all.push_back({"aten::topk", topk_applies, topk});
}

}  // namespace tessera::detail
