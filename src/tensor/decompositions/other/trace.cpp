// The trace of a matrix that is cut in rows, columns or both: each rank adds up
// what the diagonal has of its block, and the sum stays partial.
#include <algorithm>

#include <ATen/ops/diagonal.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <tensor/decompositions/decomposed_call.h>
#include <tensor/decompositions/table.h>

namespace tessera::detail::inline tensor_layer {

namespace {

bool adds_up(const Placement& p) {
  return p.is_partial() &&
         (p.reduce_op() == ReduceOp::kSum || p.reduce_op() == ReduceOp::kAvg);
}

void trace(const OpCall& call) {
  DecomposedCall decomposed(call);
  const at::Tensor self = decomposed.tensor("self");
  const SpecPtr given = decomposed.spec(self);
  Placements operand = given->placements();
  Placements result;
  for (Placement& p : operand) {
    p = p.is_partial() && !adds_up(p) ? Replicate() : p;
    result.push_back(p.is_shard() ? Partial() : p);
  }
  const auto dtype = c10::isIntegralType(given->dtype(), /*includeBool=*/true)
                         ? at::kLong
                         : given->dtype();
  const at::Tensor x = decomposed.shard("self", self, operand);
  const Layout layout(given->shape(), decomposed.mesh().mesh_shape(), operand);
  decomposed.finish({decomposed.wrap(
      DTensorSpec::make(decomposed.mesh(), result, {}, dtype), [&] {
        if (x.numel() == 0) {
          return at::zeros({}, x.options().dtype(dtype));
        }
        const auto begin = [&](int64_t dim) {
          return layout.runs(dim, decomposed.coordinate())[0].begin;
        };
        return at::sum(at::diagonal(x, begin(0) - begin(1)), dtype);
      })});
}

bool trace_is_sharded(const RuleCall& call) {
  const Operand& self = call.self();
  return self.ndim() == 2 && shards_any(*self.placements) &&
         std::all_of(
             self.placements->begin(), self.placements->end(),
             [](const Placement& p) {
               return !p.is_shard() || p.is_contiguous();
             });
}

}  // namespace

void add_trace_decompositions(OpRegistry& ops) {
  ops.at("aten::trace").decomposition = {trace_is_sharded, trace};
}

}  // namespace tessera::detail::inline tensor_layer
