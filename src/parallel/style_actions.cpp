#include <parallel/style_actions.h>

#include <c10/util/Exception.h>
#include <modules/module_path.h>
#include <tessera/layout/notation.h>
#include <tessera/tensor/dtensor.h>
#include <torch/nn/module.h>

namespace tessera::detail::inline parallel_layer {

using torch::nn::Module;

StyleActions::StyleActions(
    Module& root, const DeviceMesh& mesh, int64_t mesh_dim)
    : root_(root), mesh_(mesh), mesh_dim_(mesh_dim) {}

void StyleActions::add(const std::string& path, const ParallelStyle& style) {
  constexpr const char* kCall = "parallelize_module";
  if (style.is_for_parameters()) {
    for (const NamedParameter& named :
         find_parameters(kCall, style.name(), root_, path)) {
      StyledParameter target(*this, style.name(), named.path, named.tensor);
      style.apply(target);
    }
    return;
  }
  for (const NamedModule& named : find_modules(kCall, root_, path)) {
    StyledModule target(*this, style.name(), named.path, *named.module);
    style.apply(target);
  }
}

std::string StyleActions::where(const StyleTarget& target) const {
  const std::string dim =
      mesh_.dim_names().empty()
          ? "dim " + std::to_string(mesh_dim_)
          : mesh_.dim_names()[static_cast<size_t>(mesh_dim_)];
  return "parallelize_module, " + target.style() + " of " +
         module_name(target.path(), root_.name(), '"') + " on " + dim + " of " +
         to_string(mesh_);
}

std::shared_ptr<ParameterUse> StyleActions::make_use(
    const StyleTarget& target) const {
  auto use = std::make_shared<ParameterUse>();
  const std::string& path = target.path();
  use->name = (path.empty() ? module_name(path, root_.name(), '"') : path) +
              ", " + target.style();
  use->mesh_dim = mesh_dim_;
  return use;
}

// One tensor may be the weight of an embedding and of a projection.
bool StyleActions::joins_other_use(
    const at::Tensor& parameter, const Placement& placement,
    const std::shared_ptr<ParameterUse>& use, bool is_lookup) {
  const auto known = placed_.find(parameter.unsafeGetTensorImpl());
  if (known == placed_.end() || !use) {
    return false;
  }
  StyleAction& action = actions_[known->second];
  if (!action.use || action.use->lookup || action.is_lookup == is_lookup ||
      action.placements[static_cast<size_t>(mesh_dim_)] != placement) {
    return false;
  }
  const auto both = is_lookup ? action.use : use;
  both->lookup = is_lookup ? use : action.use;
  action.use = both;
  return true;
}

void StyleActions::place(
    const StyleTarget& target, const std::string& path,
    const at::Tensor& parameter, const Placement& placement,
    std::shared_ptr<ParameterUse> use, bool is_lookup) {
  if (joins_other_use(parameter, placement, use, is_lookup)) {
    return;
  }
  TORCH_CHECK_VALUE(
      parameter.defined() && !is_dtensor(parameter), where(target),
      ": the parameter is sharded already; got ", path,
      "; parallelize a module once");
  TORCH_CHECK_VALUE(
      !placed_.contains(parameter.unsafeGetTensorImpl()), where(target),
      ": another style of the plan has placed ", path,
      "; name it once (tied parameters are one)");
  if (placement.is_shard()) {
    TORCH_CHECK_INDEX(
        placement.dim() >= 0 && placement.dim() < parameter.dim(),
        where(target), ": ", path, " has no dim ", placement.dim(),
        "; got shape ", parameter.sizes());
    TORCH_CHECK_VALUE(
        parameter.size(placement.dim()) >= target.ranks(), where(target), ": ",
        path, " has ", parameter.size(placement.dim()), " in dim ",
        placement.dim(), ", fewer than the ", target.ranks(),
        " ranks that it is cut for; use fewer ranks or another style");
  }
  Placements placements(static_cast<size_t>(mesh_.ndim()), Replicate());
  placements[static_cast<size_t>(mesh_dim_)] = placement;
  const Layout is_possible(
      parameter.sizes().vec(), mesh_.mesh_shape(), placements);
  placed_.emplace(parameter.unsafeGetTensorImpl(), actions_.size());
  actions_.push_back({path, parameter, placements, std::move(use), is_lookup});
}

void StyleActions::for_each_use(
    const StyledModule& target, const std::function<void(ParameterUse&)>& f) {
  const auto parameters = target.module().named_parameters();
  TORCH_CHECK_VALUE(
      !parameters.is_empty(), where(target),
      ": the module has no parameters, and layouts are applied where a "
      "parameter is used; name a module that has some");
  for (const auto& parameter : parameters) {
    const at::Tensor& tensor = parameter.value();
    const auto known = placed_.find(tensor.unsafeGetTensorImpl());
    if (known == placed_.end()) {
      auto use = make_use(target);
      f(*use);
      place(
          target, join_path(target.path(), parameter.key()), tensor,
          Replicate(), std::move(use), /*is_lookup=*/false);
    } else if (const auto& use = actions_[known->second].use) {
      f(*use);
    }
  }
}

}  // namespace tessera::detail::inline parallel_layer
