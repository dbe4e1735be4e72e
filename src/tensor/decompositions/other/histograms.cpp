// Counts whose bins depend on the smallest and the largest of all elements:
// ranks agree on those two numbers, count their own elements, and the counts
// are partial. Where the call names its bins a rule serves it.
#include <algorithm>
#include <array>

#include <ATen/ops/aminmax.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/full.h>
#include <ATen/ops/histc.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/util/accumulate.h>
#include <tensor/decompositions/decomposed_call.h>
#include <tensor/decompositions/table.h>
#include <tensor/state/replicated.h>
#include <tensor/state/value_limits.h>

namespace tessera::detail::inline tensor_layer {

namespace {

// A tensor whose elements are counted, and who has them.
struct Counted {
  explicit Counted(DecomposedCall& decomposed)
      : spec(decomposed.spec(decomposed.tensor("self"))),
        placements(without_partials(spec->placements())),
        sums(placements) {
    for (size_t m = 0; m < sums.size(); ++m) {
      if (sums[m].is_shard()) {
        over.push_back(static_cast<int64_t>(m));
        sums[m] = Partial();
      }
    }
    x = decomposed.shard("self", decomposed.tensor("self"), placements);
  }

  // The smallest and the largest element of all ranks, by one all_reduce; only
  // where the rank computes are there any.
  std::array<at::Tensor, 2> limits(DecomposedCall& decomposed) const {
    const SpecPtr both = DTensorSpec::make(
        decomposed.mesh(), replicated(decomposed.mesh()), {2}, spec->dtype());
    const at::Tensor found =
        decomposed.all_reduce(both, over, ReduceOp::kMax, [&] {
          if (x.numel() == 0) {
            return at::full({2}, smallest_value(spec->dtype()), x.options());
          }
          const auto [least, most] = at::aminmax(x);
          return at::stack({-least, most});
        });
    return found.defined()
               ? std::array<
                     at::Tensor, 2>{-found.select(0, 0), found.select(0, 1)}
               : std::array<at::Tensor, 2>();
  }

  SpecPtr spec;
  Placements placements;
  Placements sums;
  MeshDims over;
  at::Tensor x;
};

bool is_counted(const RuleCall& call) {
  const Operand& self = call.self();
  return shards_any(*self.placements) && c10::multiply_integers(self.shape) > 0;
}

bool histc_applies(const RuleCall& call) {
  const double least = call.argument("min").toScalar().toDouble();
  return is_counted(call) && c10::isFloatingType(call.self().dtype) &&
         least == call.argument("max").toScalar().toDouble();
}

void histc(const OpCall& call) {
  DecomposedCall decomposed(call);
  const Counted counted(decomposed);
  const int64_t bins = decomposed.argument("bins").toInt();
  const auto [least, most] = counted.limits(decomposed);
  decomposed.finish({decomposed.wrap(
      DTensorSpec::make(
          decomposed.mesh(), counted.sums, {bins}, counted.spec->dtype()),
      [&, lo = least, hi = most] {
        double from = lo.item<double>();
        double to = hi.item<double>();
        if (from == to) {  // as ATen does
          from -= 1;
          to += 1;
        }
        return at::histc(counted.x, bins, from, to);
      })});
}

bool histogram_applies(const RuleCall& call) {
  return is_counted(call) && c10::isFloatingType(call.self().dtype) &&
         call.is_none("range") && !call.boolean("density");
}

void histogram(const OpCall& call) {
  DecomposedCall decomposed(call);
  const Counted counted(decomposed);
  const at::Tensor weight = decomposed.shard(
      "weight", decomposed.optional_tensor("weight"), counted.placements);
  const auto [least, most] = counted.limits(decomposed);
  const int64_t bins = decomposed.argument("bins").toInt();
  std::vector<c10::IValue> local(2);
  if (decomposed.computes()) {
    local = decomposed.run_operator(
        {{"self", counted.x},
         {"range",
          std::vector<double>{least.item<double>(), most.item<double>()}},
         {"weight", weight.defined() ? c10::IValue(weight) : c10::IValue()}});
  }
  const auto result = [&](size_t i, const Placements& on, int64_t size) {
    return decomposed.wrap(
        DTensorSpec::make(decomposed.mesh(), on, {size}, counted.spec->dtype()),
        [&] { return local[i].toTensor(); });
  };
  decomposed.finish(
      {result(0, counted.sums, bins),
       result(1, replicated(decomposed.mesh()), bins + 1)});
}

bool bincount_applies(const RuleCall& call) {
  const Operand& self = call.self();
  return is_counted(call) && self.ndim() == 1 &&
         c10::isIntegralType(self.dtype, /*includeBool=*/false) &&
         self.dtype != at::kByte &&
         (!call.operand(1).defined || call.operand(1).shape == self.shape);
}

// How many bins there are follows from the values; where none are computed two
// are taken, as for ones.
void bincount(const OpCall& call) {
  DecomposedCall decomposed(call);
  const Counted counted(decomposed);
  const at::Tensor weights = decomposed.shard(
      "weights", decomposed.optional_tensor("weights"), counted.placements);
  const auto [least, most] = counted.limits(decomposed);
  int64_t bins = 2;
  if (decomposed.computes()) {
    TORCH_CHECK(
        least.item<int64_t>() >= 0,
        "bincount only supports 1-d non-negative integral inputs.");
    bins = most.item<int64_t>() + 1;
  }
  bins = std::max(bins, decomposed.argument("minlength").toInt());
  const auto dtype =
      !weights.defined() && !call.argument(1).isTensor() ? at::kLong
      : decomposed.optional_tensor("weights").scalar_type() == at::kFloat
          ? at::kFloat
          : at::kDouble;
  decomposed.finish({decomposed.wrap(
      DTensorSpec::make(decomposed.mesh(), counted.sums, {bins}, dtype), [&] {
        return counted.x.numel() == 0
                   ? at::zeros({bins}, counted.x.options().dtype(dtype))
                   : at::bincount(
                         counted.x,
                         weights.defined() ? std::optional(weights)
                                           : std::nullopt,
                         bins);
      })});
}

}  // namespace

void add_histogram_decompositions(OpRegistry& ops) {
  ops.at("aten::histc").decomposition = {histc_applies, histc};
  ops.at("aten::histogram.bin_ct").decomposition = {
      histogram_applies, histogram};
  ops.at("aten::bincount").decomposition = {bincount_applies, bincount};
}

}  // namespace tessera::detail::inline tensor_layer
