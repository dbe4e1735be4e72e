// distribute_module: any torch::nn module on a mesh, its class untouched.
//
// Parameters and buffers are converted in place (tensor/dtensor.h,
// make_dtensor_), so the module's own members, registered or typed, see sharded
// tensors. C++ modules have no hooks, so functions on inputs and outputs are
// applied by the object that distribute_module() returns.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <tessera/comm/device_mesh.h>
#include <tessera/export.h>
#include <tessera/layout/placement.h>
#include <tessera/modules/module_call.h>

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace tessera {

/// Shards some parameters of one sub-module, by make_dtensor_(). `name` is the
/// path of the sub-module, "" for the module itself.
using PartitionFn = std::function<void(
    const std::string& name, torch::nn::Module& module,
    const DeviceMesh& mesh)>;
/// Maps the tensors that go into, or come out of, a module's forward().
using TensorsFn = std::function<std::vector<at::Tensor>(
    std::vector<at::Tensor> tensors, const DeviceMesh& mesh)>;

/// Calls `partition` for every sub-module, then replicates every parameter and
/// buffer that is still plain. Values are those of the mesh's first rank.
TESSERA_API void distribute_parameters(
    torch::nn::Module& module, const DeviceMesh& mesh,
    const PartitionFn& partition = {});

/// Gives the state that an optimizer has for sharded parameters the layout of
/// its parameter. Needed only where it stepped before they were sharded.
TESSERA_API void distribute_optimizer(torch::optim::Optimizer& optimizer);

namespace detail::inline parallel_layer {

/// Throws unless a TensorsFn returned as many tensors as it was given.
TESSERA_API void check_tensor_count(
    const char* which, size_t given, size_t returned);

/// Applies a TensorsFn to all tensors inside `value`.
template <class T>
void map_tensors_inside(
    T& value, const TensorsFn& fn, const DeviceMesh& mesh, const char* which) {
  if (!fn) {
    return;
  }
  std::vector<at::Tensor> tensors;
  visit_tensors(value, [&](at::Tensor& t) { tensors.push_back(t); });
  std::vector<at::Tensor> mapped = fn(tensors, mesh);
  check_tensor_count(which, tensors.size(), mapped.size());
  auto next = mapped.begin();
  visit_tensors(value, [&](at::Tensor& t) { t = std::move(*next++); });
}

}  // namespace detail::inline parallel_layer

/// A module and what happens around its forward(). `M` is a shared_ptr to a
/// module or a holder made by TORCH_MODULE.
template <class M>
class DistributedModule : public detail::ModuleCall<M> {
 public:
  DistributedModule(
      M module, DeviceMesh mesh, TensorsFn input, TensorsFn output)
      : detail::ModuleCall<M>(std::move(module)),
        mesh_(std::move(mesh)),
        input_(std::move(input)),
        output_(std::move(output)) {}

  /// Maps the tensors among the arguments, calls forward(), maps its result.
  template <class... Arguments>
  auto operator()(Arguments&&... arguments) const {
    return this->call(
        [this](auto& values) {
          detail::map_tensors_inside(values, input_, mesh_, "input_fn");
        },
        [this](auto&... values) { return this->forward(values...); },
        [this](auto& result) {
          detail::map_tensors_inside(result, output_, mesh_, "output_fn");
        },
        std::forward<Arguments>(arguments)...);
  }
  const DeviceMesh& mesh() const { return mesh_; }

 private:
  DeviceMesh mesh_;
  TensorsFn input_;
  TensorsFn output_;
};

/// Puts a module on a mesh; see distribute_parameters(). Example:
///   auto net = distribute_module(model, mesh, [](auto&, auto& m, auto& mesh) {
///     if (auto* linear = m.template as<torch::nn::Linear>())
///       make_dtensor_(linear->weight, mesh, {Shard(0)});
///   });
///   auto y = net(x);
template <class M>
DistributedModule<M> distribute_module(
    M module, const DeviceMesh& mesh, const PartitionFn& partition = {},
    TensorsFn input = {}, TensorsFn output = {}) {
  distribute_parameters(*module, mesh, partition);
  return DistributedModule<M>(
      std::move(module), mesh, std::move(input), std::move(output));
}

}  // namespace tessera
