#include <tensor/decompositions.h>

#include <algorithm>
#include <vector>

namespace tessera::detail {

namespace {

const std::vector<Decomposition>& table() {
  static const auto* all = new std::vector<Decomposition>();
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

bool cuts_named_dim(const RuleCall& call) {
  const Operand& self = call.self();
  const std::vector<bool> named = named_dims(call, self.ndim());
  return std::any_of(
      self.placements->begin(), self.placements->end(),
      [&](const Placement& p) {
        return p.is_shard() && named[static_cast<size_t>(p.dim())];
      });
}

}  // namespace tessera::detail
