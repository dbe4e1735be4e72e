// equal(): shards are compared where they are, and the answers combined.
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <tensor/decompositions/decomposed_call.h>
#include <tensor/decompositions/table.h>
#include <tensor/state/replicated.h>

namespace tessera::detail::inline tensor_layer {

namespace {

void equal(const OpCall& call) {
  DecomposedCall decomposed(call);
  const at::Tensor self = decomposed.tensor("self");
  const at::Tensor other = decomposed.tensor("other");
  if (self.sizes() != other.sizes()) {
    return decomposed.finish({false});
  }
  const Placements of_self =
      without_partials(decomposed.spec(self)->placements());
  const Placements target =
      shards_any(of_self)
          ? of_self
          : without_partials(decomposed.spec(other)->placements());
  const at::Tensor a = decomposed.shard("self", self, target);
  const at::Tensor b = decomposed.shard("other", other, target);
  MeshDims over;
  for (size_t m = 0; m < target.size(); ++m) {
    if (target[m].is_shard()) {
      over.push_back(static_cast<int64_t>(m));
    }
  }
  const at::Tensor all = decomposed.all_reduce(
      DTensorSpec::make(
          decomposed.mesh(), replicated(decomposed.mesh()), {}, at::kByte),
      over, ReduceOp::kMin, [&] {
        return at::full(
            {}, at::equal(a, b) ? 1 : 0, a.options().dtype(at::kByte));
      });
  decomposed.finish({!decomposed.computes() || all.item<uint8_t>() != 0});
}

// ATen refuses to compare tensors of different types.
bool equal_applies(const RuleCall& call) {
  const Operand& a = call.operand(0);
  const Operand& b = call.operand(1);
  return a.dtype == b.dtype &&
         (shards_any(*a.placements) || shards_any(*b.placements));
}

}  // namespace

void add_comparison_decompositions(OpRegistry& ops) {
  ops.at("aten::equal").decomposition = {equal_applies, equal};
}

}  // namespace tessera::detail::inline tensor_layer
