#include <tessera/parallel/parallelize_module.h>

#include <parallel/mesh_dim.h>
#include <parallel/style_actions.h>
#include <tessera/parallel/distribute_module.h>
#include <tessera/tensor/dtensor.h>

namespace tessera {

void parallelize_module(
    torch::nn::Module& module, const DeviceMesh& mesh, const ParallelPlan& plan,
    const ParallelizeOptions& options) {
  const int64_t dim = detail::find_mesh_dim(
      "parallelize_module", mesh, options.mesh_dim, "tp", mesh.ndim() - 1);
  for (const detail::StyleAction& action :
       detail::find_actions(module, mesh, dim, plan)) {
    Placements placements(static_cast<size_t>(mesh.ndim()), Replicate());
    placements[static_cast<size_t>(dim)] = action.placement;
    make_dtensor_(action.parameter, mesh, placements);
    if (action.use) {
      detail::set_parameter_use(action.parameter, action.use);
    }
  }
  distribute_parameters(module, mesh);
}

}  // namespace tessera
