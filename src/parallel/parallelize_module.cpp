#include <tessera/parallel/parallelize_module.h>

#include <parallel/mesh_dim.h>
#include <parallel/parameter_names.h>
#include <parallel/style_actions.h>
#include <tensor/api/in_place.h>
#include <tessera/parallel/distribute_module.h>
#include <tessera/tensor/dtensor.h>
#include <torch/nn/module.h>

namespace tessera {

namespace {

// Everything is converted or nothing.
void check_convertible(
    const torch::nn::Module& module, const DeviceMesh& mesh) {
  const Placements unsharded(static_cast<size_t>(mesh.ndim()), Replicate());
  const auto check = [&](const std::string& name, const at::Tensor& t) {
    if (t.defined() && !is_dtensor(t)) {
      const std::string call = "parallelize_module, " + name;
      detail::check_in_place(call.c_str(), t, mesh, unsharded);
    }
  };
  for (const auto& item : module.named_parameters()) {
    check(item.key(), item.value());
  }
  for (const auto& item : module.named_buffers()) {
    check(item.key(), item.value());
  }
}

}  // namespace

void parallelize_module(
    torch::nn::Module& module, const DeviceMesh& mesh, const ParallelPlan& plan,
    const ParallelizeOptions& options) {
  const int64_t dim = detail::find_mesh_dim(
      "parallelize_module", mesh, options.mesh_dim, "tp", mesh.ndim() - 1);
  detail::StyleActions actions(module, mesh, dim);
  for (const bool around : {false, true}) {
    for (const auto& [path, style] : plan) {
      if (style.is_around() == around) {
        actions.add(path, style);
      }
    }
  }
  check_convertible(module, mesh);
  detail::name_parameters(module);
  for (const detail::StyleAction& action : actions.take()) {
    make_dtensor_(action.parameter, mesh, action.placements);
    if (action.use) {
      detail::set_parameter_use(action.parameter, action.use);
    }
  }
  distribute_parameters(module, mesh);
}

}  // namespace tessera
