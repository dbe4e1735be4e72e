#include <tensor/decompositions/table.h>

#include <algorithm>

namespace tessera::detail::inline tensor_layer {

namespace {

const Decompositions& table() {
  static const auto* all = [] {
    auto* made = new Decompositions();
    add_softmax_decompositions(*made);
    add_norm_decompositions(*made);
    add_variance_decompositions(*made);
    add_extreme_decompositions(*made);
    add_scan_decompositions(*made);
    add_layer_norm_decompositions(*made);
    add_batch_norm_decompositions(*made);
    add_batch_norm_update_decompositions(*made);
    add_foreach_decompositions(*made);
    add_loss_decompositions(*made);
    add_nll_decompositions(*made);
    add_comparison_decompositions(*made);
    add_topk_decompositions(*made);
    add_concat_decompositions(*made);
    add_convolution_decompositions(*made);
    return made;
  }();
  return *all;
}

}  // namespace

const Decomposition* find_decomposition(const c10::OperatorName& name) {
  const std::string full = full_name(name);
  const auto found = std::find_if(
      table().begin(), table().end(),
      [&](const Decomposition& d) { return d.op == full; });
  return found == table().end() ? nullptr : &*found;
}

bool shards_named_dim(const RuleCall& call) {
  const Operand& self = call.self();
  const std::vector<bool> named = named_dims(call, self.ndim());
  return std::any_of(
      self.placements->begin(), self.placements->end(),
      [&](const Placement& p) {
        return p.is_shard() && named[static_cast<size_t>(p.dim())];
      });
}

}  // namespace tessera::detail::inline tensor_layer
