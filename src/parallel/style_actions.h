// What a parallel plan does to each parameter, found out and checked before any
// of them is touched.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <tensor/uses/parameter_use.h>
#include <tessera/parallel/parallelize_module.h>

namespace tessera::detail::inline parallel_layer {

/// A parameter, its placements and its use.
struct StyleAction {
  std::string path;  // of the parameter
  at::Tensor parameter;
  Placements placements;
  std::shared_ptr<ParameterUse> use = nullptr;
  bool is_lookup = false;  // of an embedding
};

/// Returns what to do for a plan; every parameter comes once. Throws where the
/// plan does not fit the module or the mesh dim.
std::vector<StyleAction> find_actions(
    torch::nn::Module& module, const DeviceMesh& mesh, int64_t mesh_dim,
    const ParallelPlan& plan);

}  // namespace tessera::detail::inline parallel_layer
