// equal(): shards are compared where they are, and the answers combined.
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <tensor/decompositions/decomposed_call.h>
#include <tensor/decompositions/table.h>
#include <tensor/state/replicated.h>

namespace tessera::detail {

namespace {

void equal(const OpCall& call) {
  CutCall cut(call);
  const at::Tensor self = cut.tensor("self");
  const at::Tensor other = cut.tensor("other");
  if (self.sizes() != other.sizes()) {
    return cut.finish({false});
  }
  const Placements of_self = settled(cut.spec(self)->placements());
  const Placements target =
      cuts_any(of_self) ? of_self : settled(cut.spec(other)->placements());
  const at::Tensor a = cut.shard("self", self, target);
  const at::Tensor b = cut.shard("other", other, target);
  MeshDims over;
  for (size_t m = 0; m < target.size(); ++m) {
    if (target[m].is_shard()) {
      over.push_back(static_cast<int64_t>(m));
    }
  }
  const at::Tensor all = cut.all_reduce(
      DTensorSpec::make(cut.mesh(), replicated(cut.mesh()), {}, at::kByte),
      over, ReduceOp::kMin, [&] {
        return at::full(
            {}, at::equal(a, b) ? 1 : 0, a.options().dtype(at::kByte));
      });
  cut.finish({!cut.computes() || all.item<uint8_t>() != 0});
}

// ATen refuses to compare tensors of different types.
bool equal_applies(const RuleCall& call) {
  const Operand& a = call.operand(0);
  const Operand& b = call.operand(1);
  return a.dtype == b.dtype &&
         (cuts_any(*a.placements) || cuts_any(*b.placements));
}

}  // namespace

void add_comparison_decompositions(Decompositions& all) {
  all.push_back({"aten::equal", equal_applies, equal});
}

}  // namespace tessera::detail
