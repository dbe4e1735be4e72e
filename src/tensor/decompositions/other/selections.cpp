// A result as long as there are elements to find: masked_select. Each rank
// finds its own, in a ragged shard of the result; one all_gather says how many
// others have.
#include <algorithm>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/masked_select.h>
#include <c10/util/accumulate.h>
#include <layout/cut.h>
#include <tensor/decompositions/decomposed_call.h>
#include <tensor/decompositions/table.h>
#include <tensor/state/replicated.h>

namespace tessera::detail::inline tensor_layer {

namespace {

// The mesh dim that cuts a tensor, and no other does: lengths along one may not
// depend on the coordinate of another. -1 where there is none.
int64_t only_mesh_dim(const std::vector<const Placements*>& all) {
  int64_t found = -1;
  for (const Placements* placements : all) {
    for (size_t m = 0; m < placements->size(); ++m) {
      const Placement& p = (*placements)[m];
      if (p.is_partial() ||
          (p.is_shard() && found >= 0 && found != static_cast<int64_t>(m))) {
        return -1;
      }
      found = p.is_shard() ? static_cast<int64_t>(m) : found;
    }
  }
  return found;
}

// Cuts of the first dim that is longer than one keep elements in order; those
// of others move there.
int64_t ordered_dim(c10::IntArrayRef shape) {
  const auto* longer = std::find_if(
      shape.begin(), shape.end(), [](int64_t size) { return size > 1; });
  return longer == shape.end() ? -1 : longer - shape.begin();
}

bool masked_select_applies(const RuleCall& call) {
  const Operand& self = call.operand(0);
  const Operand& mask = call.operand(1);
  return self.shape == mask.shape && mask.dtype == at::kBool &&
         only_mesh_dim({self.placements, mask.placements}) >= 0 &&
         ordered_dim(self.shape) >= 0 && c10::multiply_integers(self.shape) > 0;
}

class Selection {
 public:
  Selection(const DecomposedCall& decomposed, const at::Tensor& like, int64_t m)
      : decomposed_(decomposed),
        mesh_dim_(m),
        placements_(replicated(decomposed.mesh())) {
    placements_[static_cast<size_t>(m)] = Shard(ordered_dim(like.sizes()));
  }

  const Placements& placements() const { return placements_; }
  // Wraps what this rank found, along its first dim; without data as if all
  // `most` elements were.
  at::Tensor wrap(
      const at::Tensor& found, std::vector<int64_t> shape,
      c10::ScalarType dtype, int64_t most) const {
    const SpecPtr count = DTensorSpec::make(
        decomposed_.mesh(), replicated(decomposed_.mesh()), {1}, at::kLong);
    const at::Tensor counts = decomposed_.gathered(
        count, {mesh_dim_}, "counts of elements found", [&] {
          return at::full({1}, found.size(0), found.options().dtype(at::kLong));
        });
    Placements placements = replicated(decomposed_.mesh());
    Placement& p = placements[static_cast<size_t>(mesh_dim_)];
    p = Shard(0);
    shape[0] = most;
    if (counts.defined()) {
      const at::Tensor host = counts.cpu().flatten();
      const std::vector<int64_t> lengths(
          host.const_data_ptr<int64_t>(),
          host.const_data_ptr<int64_t>() + host.numel());
      shape[0] = c10::sum_integers(lengths);
      p = shard_of_lengths(0, lengths);
    }
    return decomposed_.wrap(
        DTensorSpec::make(decomposed_.mesh(), placements, shape, dtype),
        [&] { return found; });
  }

 private:
  const DecomposedCall& decomposed_;
  int64_t mesh_dim_;
  Placements placements_;
};

void masked_select(const OpCall& call) {
  DecomposedCall decomposed(call);
  const at::Tensor self = decomposed.tensor("self");
  const at::Tensor mask = decomposed.tensor("mask");
  const Selection selection(
      decomposed, self,
      only_mesh_dim(
          {&decomposed.spec(self)->placements(),
           &decomposed.spec(mask)->placements()}));
  const at::Tensor x = decomposed.shard("self", self, selection.placements());
  const at::Tensor wanted =
      decomposed.shard("mask", mask, selection.placements());
  decomposed.finish({selection.wrap(
      decomposed.computes() ? at::masked_select(x, wanted) : at::Tensor(), {0},
      self.scalar_type(), self.numel())});
}

}  // namespace

void add_selection_decompositions(OpRegistry& ops) {
  ops.at("aten::masked_select").decomposition = {
      masked_select_applies, masked_select};
}

}  // namespace tessera::detail::inline tensor_layer
